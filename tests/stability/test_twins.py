"""Twin runs: coupled draws, distances, stacked and separate members, and the choice between them."""

import pytest
import torch
from torch import Tensor, nn

from freeat import Erm
from freeat.algorithms import Algorithm, StepRecord
from freeat.data import CropFlip, Images
from freeat.data.batches import Batches
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.models import build
from freeat.stability import (
    Stack,
    Twins,
    choose_engine,
    delta_distances,
    make_runs,
    train_twins,
    weight_distances,
)
from freeat.stability.twins import outside
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
        flat = torch.cat([p.detach().flatten() for p in learner.model.parameters()])
        assert torch.equal(flat, runs.weights()[k + 1])


class _Wide:
    """The algorithm on float64 images: the loop's own are float32, and draws follow the images' type."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.updates_per_batch = algorithm.updates_per_batch

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        return self.algorithm.step(learner, x.double(), y)


@pytest.mark.parametrize("engine", ["stacked", "separate"])
def test_twins_differ_from_the_first_batch_with_the_replaced_example(engine: str) -> None:
    twins = some_twins(n=30, replaced=(0, 5, 9, 17))
    batches = some_batches(twins, size=2)
    meetings = twins.first_batches(batches, 40)
    runs = make_runs(engine, some_model(), twins.members, learner_of(40))
    for t, _ in enumerate(train_twins(runs, algorithm_of("fast"), twins, batches), start=1):
        apart = [d > 0 for d in weight_distances(runs)]
        assert apart == [first is not None and t >= first for first in meetings]
    assert len({first for first in meetings if first is not None}) > 1


@pytest.mark.parametrize("engine", ["stacked", "separate"])
def test_replayed_twins_share_their_view(engine: str) -> None:
    """Every member is the ordinary run on its own sample, also where batches are replayed and cropped."""
    twins = some_twins(n=12, replaced=(1, 4))
    batches = Batches(n=12, size=4, seed=0, sampling="independent", replay=3)
    crop = CropFlip(pad=1)
    runs = some_runs(engine, twins, updates=12, dtype=torch.float32)
    for _ in train_twins(runs, algorithm_of("vanilla-2"), twins, batches, crop):
        pass
    for k in range(2):
        own = twins.sample.neighbour(twins.replaced[k], twins.replacements.x[k], int(twins.replacements.y[k]))
        learner = learner_of(12)(some_model(dtype=torch.float32))
        for _ in train(learner, algorithm_of("vanilla-2"), own, batches, crop):
            pass
        flat = torch.cat([p.detach().flatten() for p in learner.model.parameters()])
        assert torch.allclose(flat, runs.weights()[k + 1], atol=1e-5)


def test_rows_replace_only_the_replaced_example() -> None:
    twins = some_twins(n=6, replaced=(1, 4))
    rows = twins.rows(torch.tensor([4, 0, 1]))
    assert rows.tolist() == [[4, 0, 1], [4, 0, 6], [7, 0, 1]]
    for k in range(2):
        x, y = twins.both.batch(rows[k + 1])
        own = twins.sample.neighbour(twins.replaced[k], twins.replacements.x[k], int(twins.replacements.y[k]))
        expected = own.batch(torch.tensor([4, 0, 1]))
        assert torch.equal(x, expected[0])
        assert torch.equal(y, expected[1])


def test_copied_member_has_the_weights_of_the_member() -> None:
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
    assert len(Images.joined(sample, pool)) == 40
    one, same, other = (Twins.draw(sample, pool, 4, seed) for seed in (0, 0, 1))
    assert one.replaced == same.replaced != other.replaced
    assert len(set(one.replaced)) == 4
    assert not set(one.replacements.index.tolist()) & set(sample.index.tolist())
    assert torch.equal(one.originals.x, sample.x[torch.tensor(one.replaced)])
    with pytest.raises(InputError, match="between 1 and 10"):
        Twins.draw(sample, pool, 11)
    with pytest.raises(InputError, match="outside the sample"):
        outside(sample, sample)


def test_inconsistent_twins_are_refused() -> None:
    with pytest.raises(InputError, match="one replacement for each"):
        Twins(sample=some_images(5), replaced=(1, 2), replacements=some_images(1))
    with pytest.raises(InputError, match="0 to 4"):
        Twins(sample=some_images(5), replaced=(5,), replacements=some_images(1))


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'stacked'"):
        make_runs("stack", some_model(), 2, lambda m: Learner(m, torch.optim.SGD(m.parameters(), 0.1)))


def plain_models(name: str, members: int, shape: tuple[int, int, int]) -> list[nn.Module]:
    return [build(name, classes=4, shape=shape, seed=k).double() for k in range(members)]


def stack_of(models: list[nn.Module]) -> Stack:
    stack = Stack(models[0], len(models))
    with torch.no_grad():
        for p, *members in zip(stack.parameters(), *(m.parameters() for m in models), strict=True):
            p.copy_(torch.stack(members))
    return stack


@pytest.mark.parametrize(
    "name", ["linear", "mlp-w16-softplus", "cnn-w4-gn", "cnn-w4-nonorm", "resnet18-w4-gn-s2"]
)
def test_logits_and_gradients_are_those_of_the_plain_models(name: str) -> None:
    shape = (2, 8, 8)
    models = plain_models(name, 3, shape)
    stack = stack_of(models)
    x = torch.rand(
        3, 5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    logits = stack(x)
    logits.square().sum().backward()
    for k, model in enumerate(models):
        own = x[k].detach().requires_grad_()
        plain = model(own)
        plain.square().sum().backward()
        torch.testing.assert_close(logits[k], plain, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(x.grad[k], own.grad, rtol=1e-9, atol=1e-10)
        for p, q in zip(stack.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(p.grad[k], q.grad, rtol=1e-9, atol=1e-9)


def test_weights_are_a_row_per_member() -> None:
    models = plain_models("mlp-w8", 3, (1, 4, 4))
    rows = stack_of(models).flat()
    for row, model in zip(rows, models, strict=True):
        assert torch.equal(row, torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_tied_and_frozen_parameters_stay_so() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Linear(4, 4))
    model[2].weight = model[1].weight
    model[2].bias.requires_grad_(False)
    stack = Stack(model, 2)
    assert len(list(stack.parameters())) == 3
    assert [p.requires_grad for p in stack.parameters()] == [True, True, False]
    x = torch.rand(2, 3, 1, 2, 2)
    torch.testing.assert_close(stack(x)[1], model(x[1]))


def test_batch_norm_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"running statistics.*-gn or -nonorm"):
        Stack(build("cnn-w4", classes=3, shape=(1, 8, 8)), 2)


def test_an_empty_stack_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        Stack(nn.Linear(2, 2), 0)


class _SlowWhen:
    """ERM that takes long on stacks, or on single models."""

    updates_per_batch = 1

    def __init__(self, *, stacked: bool) -> None:
        self.stacked = stacked

    def step(self, learner: Learner, x: torch.Tensor, y: torch.Tensor) -> StepRecord:
        if (x.ndim == 5) == self.stacked:
            for _ in range(40):
                learner.logits(x.repeat_interleave(20, dim=-4))
        return Erm().step(learner, x, y)


def test_faster_engine_is_chosen() -> None:
    x, y = some_images(8).batch(torch.arange(8))
    for stacked, expected in ((True, "separate"), (False, "stacked")):
        choice = choose_engine(some_model(), 6, learner_of(9), _SlowWhen(stacked=stacked), x.double(), y)
        assert choice.engine == expected
        assert choice.reason is None
        assert set(choice.seconds_per_batch) == {"stacked", "separate"}


def test_engine_is_chosen_with_a_budget_of_one_update() -> None:
    x, y = some_images(8).batch(torch.arange(8))
    assert (
        choose_engine(some_model(), 3, learner_of(1), Erm(), x.double(), y).seconds_per_batch["stacked"] > 0
    )


def test_batch_norm_model_trains_separately_with_the_reason() -> None:
    x, y = some_images(8).batch(torch.arange(8))
    choice = choose_engine(some_model("cnn-w4"), 3, learner_of(2), Erm(), x.double(), y)
    assert choice.engine == "separate"
    assert "running statistics" in str(choice.reason)
