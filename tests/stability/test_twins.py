"""Twin runs: coupled draws, exact zeros, and stacked and separate as one."""

import pytest
import torch
from torch import Tensor

from freeat.algorithms import Algorithm, StepRecord
from freeat.data import CropFlip
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.stability import Twins, delta_distances, make_runs, train_twins, weight_distances
from freeat.stability.twins import joined, outside
from freeat.training.loop import train
from samples import algorithm_of, learner_of, some_batches, some_images, some_model, some_runs, some_twins

ALGORITHMS = [
    "erm",
    "vanilla-3",
    "fast",
    "free-3",
    "trades-2",
    "free-trades-3",
    "friendly-3",
    "mart-2",
    "free-alp-2",
]


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_stacked_and_separate_agree_over_50_updates(name: str, norm: str) -> None:
    twins = some_twins()
    algorithm = algorithm_of(name, norm)
    ends = {}
    for engine in ("stacked", "separate"):
        runs = some_runs(engine, twins, updates=50)
        record = list(train_twins(runs, algorithm, twins, some_batches(twins), CropFlip(pad=1)))[-1]
        ends[engine] = (runs.weights(), record.delta, record.losses)
    for one, two in zip(*ends.values(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-9)
    assert (ends["stacked"][0][1:] - ends["stacked"][0][:1]).norm(dim=1).min() > 1e-4


@pytest.mark.parametrize("engine", ["stacked", "separate"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_equal_samples_give_exact_zeros(name: str, engine: str) -> None:
    sample = some_images(12)
    twins = Twins(sample=sample, replaced=(1, 4, 7), replacements=sample.take(torch.tensor([1, 4, 7])))
    runs = some_runs(engine, twins, updates=12, dtype=torch.float32)
    for record in train_twins(runs, algorithm_of(name), twins, some_batches(twins), CropFlip(pad=1)):
        assert delta_distances(record) == [0.0] * 3
        assert weight_distances(runs) == [0.0] * 3


@pytest.mark.parametrize("name", ["vanilla-2", "free-3"])
def test_each_member_is_an_ordinary_run_on_its_own_sample(name: str) -> None:
    """Member k + 1 has the bits that the library's loop gives on S with the example replaced."""
    twins = some_twins()
    batches = some_batches(twins)
    runs = some_runs("separate", twins, updates=12)
    for _ in train_twins(runs, algorithm_of(name), twins, batches):
        pass
    for k, i in enumerate(twins.replaced):
        image = twins.replacements
        neighbour = twins.sample.neighbour(i, image.x[k], int(image.y[k]))
        learner = learner_of(12)(some_model())
        for _ in train(learner, _Wide(algorithm_of(name)), neighbour, batches):
            pass
        alone = torch.cat([p.detach().flatten() for p in learner.model.parameters()])
        assert torch.equal(alone, runs.weights()[k + 1])


class _Wide:
    """The algorithm on float64 images: the loop's own are float32, and draws follow the images' type."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.updates_per_batch = algorithm.updates_per_batch

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        return self.algorithm.step(learner, x.double(), y)


@pytest.mark.parametrize("engine", ["stacked", "separate"])
def test_twins_part_at_the_first_meeting(engine: str) -> None:
    twins = some_twins(n=30, replaced=(0, 5, 9, 17))
    batches = some_batches(twins, size=2)
    meetings = twins.meetings(batches, 40)
    runs = make_runs(engine, some_model(), twins.members, learner_of(40))
    for t, _ in enumerate(train_twins(runs, algorithm_of("fast"), twins, batches), start=1):
        apart = [d > 0 for d in weight_distances(runs)]
        assert apart == [first is not None and t >= first for first in meetings]
    assert len({first for first in meetings if first is not None}) > 1


def test_rows_point_to_the_replacement_only_where_it_stands() -> None:
    twins = some_twins(n=6, replaced=(1, 4))
    rows = twins.rows(torch.tensor([4, 0, 1]))
    assert rows.tolist() == [[4, 0, 1], [4, 0, 6], [7, 0, 1]]
    for k in range(2):
        x, y = twins.both.batch(rows[k + 1])
        own = twins.sample.neighbour(twins.replaced[k], twins.replacements.x[k], int(twins.replacements.y[k]))
        expected = own.batch(torch.tensor([4, 0, 1]))
        assert torch.equal(x, expected[0])
        assert torch.equal(y, expected[1])


def test_a_member_copied_out_is_the_member() -> None:
    twins = some_twins()
    for engine in ("stacked", "separate"):
        runs = some_runs(engine, twins, updates=10)
        for _ in train_twins(runs, algorithm_of("fast"), twins, some_batches(twins)):
            pass
        for k in range(twins.members):
            flat = torch.cat([p.detach().flatten() for p in runs.member(k).parameters()])
            assert torch.equal(flat, runs.weights()[k])


def test_separate_runs_take_batch_norm() -> None:
    twins = some_twins()
    model = some_model("cnn-w4")
    runs = make_runs("separate", model, twins.members, learner_of(6))
    for _ in train_twins(runs, algorithm_of("free-2"), twins, some_batches(twins)):
        pass
    assert max(weight_distances(runs)) > 0
    with pytest.raises(InputError, match="running statistics"):
        make_runs("stacked", model, twins.members, learner_of(6))


def test_dropout_is_refused_by_both_engines() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 3))
    for engine in ("stacked", "separate"):
        with pytest.raises(InputError, match="draws its own random numbers"):
            make_runs(engine, model, 2, learner_of(1))


def test_drawn_twins_follow_the_seed_and_come_from_outside() -> None:
    everything = some_images(40)
    sample = everything.subset(10)
    pool = outside(everything, sample)
    assert len(joined(sample, pool)) == 40
    one, same, other = (Twins.draw(sample, pool, 4, seed) for seed in (0, 0, 1))
    assert one.replaced == same.replaced != other.replaced
    assert len(set(one.replaced)) == 4
    assert not set(one.replacements.index.tolist()) & set(sample.index.tolist())
    assert torch.equal(one.originals.x, sample.x[torch.tensor(one.replaced)])
    with pytest.raises(InputError, match="between 1 and 10"):
        Twins.draw(sample, pool, 11)
    with pytest.raises(InputError, match="outside the sample"):
        outside(sample, sample)


def test_wrong_twins_are_refused() -> None:
    with pytest.raises(InputError, match="one replacement for each"):
        Twins(sample=some_images(5), replaced=(1, 2), replacements=some_images(1))
    with pytest.raises(InputError, match="0 to 4"):
        Twins(sample=some_images(5), replaced=(5,), replacements=some_images(1))


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'stacked'"):
        make_runs("stack", some_model(), 2, lambda m: Learner(m, torch.optim.SGD(m.parameters(), 0.1)))
