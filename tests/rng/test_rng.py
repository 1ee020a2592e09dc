"""Draws are pure functions of (seed, purpose, step or image), and nothing touches a global generator."""

import itertools
import random as python_random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from freeat import Free, Friendly, Vanilla, rng
from freeat.attacks.pgd import Pgd
from freeat.learner import Learner
from freeat.objectives import Trades
from freeat.rng import ImageRng, Rng, StepRng, permutation, sample, stream_key
from problems import BALLS, images, smooth_net

SHAPES = [None, (1, 1, 1), (), (2,), (2, 3), (4, 3, 2)]
Draw = Callable[[Rng, Tensor], Tensor]


def drawing(law: str, shape: tuple[int, ...] | None) -> Draw:
    return lambda rng, x: getattr(rng, law)("start", x, shape)


DRAWS = {f"{law}-{shape}": drawing(law, shape) for law in ("uniform", "normal") for shape in SHAPES}


def blank(b: int, *stack: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.zeros(*stack, b, 3, 4, 5, dtype=dtype, device=device)


@contextmanager
def global_generators_untouched() -> Iterator[None]:
    def states() -> tuple[bytes, str, object]:
        return torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()), python_random.getstate()  # noqa: NPY002

    before = states()
    yield
    assert states() == before


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@given(
    total=st.integers(1, 40),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.sampled_from([7, (7, 8)]),
)
@settings(max_examples=40, deadline=None)
def test_each_process_draws_its_rows_of_the_global_batch(
    draw: Draw, total: int, cut: tuple[int, int], dtype: torch.dtype, seed: int | tuple[int, ...]
) -> None:
    first, last = sorted(min(c, total) for c in cut)
    stack = () if isinstance(seed, int) else (2,)
    rows = (slice(None),) * len(stack) + (slice(first, last),)
    own, everything = (blank(b, *stack, dtype=dtype) for b in (last - first, total))
    whole = draw(StepRng(seed, (3,), total, 0), everything)
    assert whole.shape[: len(stack) + 1] == (*stack, total)
    mine = draw(StepRng(seed, (3,), total, first), own)
    assert torch.equal(mine, whole[rows])
    assert torch.equal(draw(StepRng(seed, (3,), total, 0).from_row(first), own), mine)
    assert torch.equal(draw(StepRng(seed, (3,)), everything), whole), (
        "with one process the batch is the global batch"
    )


@pytest.mark.parametrize("law", ["uniform", "normal"])
@pytest.mark.parametrize(("first", "b"), [(0, 16), (20, 16), (48, 16), (7, 0)])
def test_a_process_draws_no_rows_of_others(
    law: str, first: int, b: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    fill = rng._fill
    monkeypatch.setattr(rng, "_fill", lambda law, x, g: drawn.append(x.numel()) or fill(law, x, g))
    getattr(StepRng(1, (2,), 64, first), law)("start", blank(b))
    around = (
        0 if law == "uniform" else 3 * rng.NORMAL_BLOCK
    )  # the blocks that it shares, and the one drawn again
    assert b * 60 <= sum(drawn) <= b * 60 + around


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@given(images=st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True))
@settings(max_examples=25, deadline=None)
def test_draws_of_an_image_do_not_depend_on_its_batch(draw: Draw, images: list[int]) -> None:
    drawn = draw(ImageRng(7, images), blank(len(images)))
    for row, image in enumerate(images):
        assert torch.equal(drawn[row], draw(ImageRng(7, [image]), blank(1))[0])
    odd = list(range(len(images)))[1::2]
    assert torch.equal(drawn[odd], draw(ImageRng(7, images).select(odd), blank(len(odd))))


@pytest.mark.parametrize(
    "images_as", [list, tuple, np.array, torch.tensor, lambda r: torch.tensor(r).numpy()]
)
def test_draws_do_not_depend_on_the_type_of_the_index(
    images_as: Callable[[list[int]], object],
) -> None:
    drawn = ImageRng(7, images_as([4, 9])).normal("start", blank(2))  # type: ignore[arg-type]
    assert torch.equal(drawn, ImageRng(7, [4, 9]).normal("start", blank(2)))
    assert stream_key(np.int64(3), "start", np.int32(4)) == stream_key(3, "start", 4)


def test_images_of_a_block_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[np.random.Philox] = []
    philox = np.random.Philox
    monkeypatch.setattr(np.random, "Philox", lambda key: made.append(philox(key=key)) or made[-1])
    ImageRng(0, range(50)).normal("start", blank(50))
    assert len(made) == 1, "one generator for all images"


@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_images_and_draws_of_other_lengths_are_independent(law: str) -> None:
    """Neighbouring images, far images, and two draws that differ in their length only share no numbers."""
    x = torch.zeros(4, 3, 8, 8)
    drawn = getattr(ImageRng(1, [0, 1, 2, 10**12]), law)("start", x).flatten().tolist()
    drawn += getattr(ImageRng(1, [0, 1, 2, 10**12]), law)("start", x, (191,)).flatten().tolist()
    drawn += getattr(ImageRng(1, range(4)).at(0), law)("start", x).flatten().tolist()
    # of 2^24 values some coincide by chance: about N²/2^25 of N draws
    assert len(drawn) - len(set(drawn)) < 5


def test_normal_draws_have_the_moments_and_tails_of_the_law() -> None:
    z = ImageRng(3, range(400)).normal("start", torch.zeros(400, 3, 32, 32)).flatten().double().numpy()
    assert stats.kstest(z[:200_000], "norm").pvalue > 1e-3
    assert np.abs(stats.kurtosis(z)) < 5 * np.sqrt(24 / len(z))
    beyond = (np.abs(z) > 4).sum()
    assert stats.binomtest(int(beyond), len(z), 2 * stats.norm.sf(4)).pvalue > 1e-3
    odd = ImageRng(3, range(20_000)).normal("start", blank(20_000), (3,)).numpy()
    assert np.abs(np.corrcoef(odd, rowvar=False) - np.eye(3)).max() < 5 / np.sqrt(len(odd))


BOTH: dict[str, Rng] = {"step": StepRng(7, (3,)), "image": ImageRng(7, range(4), (3,))}


@pytest.mark.parametrize("rng", BOTH.values(), ids=BOTH)
class TestEveryKindOfRng:
    def test_order_of_calls_does_not_matter(self, rng: Rng) -> None:
        x = blank(4)
        one, other, common = rng.normal("a", x), rng.uniform("b", x), rng.common("c", x)
        assert torch.equal(rng.common("c", x), common)
        assert torch.equal(rng.uniform("b", x), other)
        assert torch.equal(rng.normal("a", x), one)

    def test_seeds_purposes_and_paths_differ(self, rng: Rng) -> None:
        x, seed8 = blank(4), type(rng)(8, *(vars(rng)[f] for f in list(vars(rng))[1:]))  # type: ignore[call-arg]
        drawn = [
            c.normal(purpose, x)
            for c in (rng, seed8, rng.at(0), rng.at(1), rng.at(1, 0), rng.at("restart", 1))
            for purpose in ("start", "omega")
        ]
        for i, one in enumerate(drawn):
            assert not any(torch.equal(one, other) for other in drawn[:i])

    def test_a_stack_shares_its_draws(self, rng: Rng) -> None:
        stacked = rng.normal("a", blank(4, 2, 3))
        assert stacked.shape == (2, 3, 4, 3, 4, 5)
        assert rng.normal("a", blank(4, 2, 3), (6, 7)).shape == (2, 3, 4, 6, 7)
        assert torch.equal(stacked, rng.normal("a", blank(4)).expand_as(stacked))

    def test_common_draw_is_one_for_all_images_and_batches(self, rng: Rng) -> None:
        x = blank(4)
        assert rng.common("a", x).shape == (3, 4, 5)
        assert torch.equal(rng.common("a", x), rng.common("a", blank(2, 6)))

    def test_dtype_and_device_follow_the_images(self, rng: Rng, device: torch.device) -> None:
        real = rng.uniform("a", blank(4).to(device))
        assert real.device.type == device.type
        assert real.dtype == torch.float32
        assert rng.uniform("a", blank(4).to(torch.uint8)).dtype == torch.float32
        assert rng.normal("a", blank(4, dtype=torch.float64)).dtype == torch.float64
        for drawn in (
            rng.uniform("a", blank(4, device="meta")),
            rng.common("a", blank(4, device="meta")),
        ):
            assert drawn.device.type == "meta"

    def test_laws(self, rng: Rng) -> None:
        x = torch.zeros(4, 3, 32, 32)
        assert stats.kstest(rng.uniform("a", x).flatten().numpy(), "uniform").pvalue > 1e-3
        assert stats.kstest(rng.normal("a", x).flatten().numpy(), "norm").pvalue > 1e-3
        rows = rng.normal("a", x).flatten(1).numpy()
        assert np.abs(np.corrcoef(rows) - np.eye(4)).max() < 5 / np.sqrt(rows.shape[1])

    def test_global_generators_are_untouched(self, rng: Rng) -> None:
        with global_generators_untouched():
            before = rng.normal("a", blank(4))
            rng.common("a", blank(4))
        torch.manual_seed(1234)
        assert torch.equal(rng.normal("a", blank(4)), before)


def test_permutations_are_functions_of_their_key() -> None:
    one = permutation(100, 0, "order", 1)
    assert torch.equal(one.sort().values, torch.arange(100))
    assert torch.equal(one, permutation(100, 0, "order", 1))
    assert not torch.equal(one, permutation(100, 0, "order", 2))
    assert not torch.equal(one, permutation(100, 1, "order", 1))


def test_a_sample_is_uniform_over_ordered_subsets() -> None:
    drawn = Counter(tuple(sample(5, 3, 0, "batch", t).tolist()) for t in range(6000))
    assert set(drawn) == set(itertools.permutations(range(5), 3))
    assert stats.chisquare(list(drawn.values())).pvalue > 1e-3


@given(n=st.integers(1, 60), data=st.data())
def test_a_sample_is_a_function_of_its_key_and_repeats_nothing(n: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, n))
    drawn = sample(n, size, 0, "batch", 7)
    assert torch.equal(drawn, sample(n, size, 0, "batch", 7))
    assert len(set(drawn.tolist())) == len(drawn) == size
    assert set(drawn.tolist()) <= set(range(n))


def test_a_sample_costs_nothing_for_the_items_it_leaves() -> None:
    """A permutation of that many items could not be stored."""
    drawn = sample(10**15, 1000, 0, "batch", 1)
    assert drawn.unique().shape == (1000,)
    assert stats.kstest(drawn.numpy() / 1e15, "uniform").pvalue > 1e-3


def test_training_and_attacks_do_not_change_the_global_generators() -> None:
    x, y = images(0, 6)
    net, ball = smooth_net(), BALLS["l2"]
    learner = Learner(net, torch.optim.SGD(net.parameters(), lr=0.1))
    with global_generators_untouched():
        Vanilla(ball=ball, m=2, start="gaussian", objective=Trades()).step(learner, x, y)
        Free(ball=ball, m=2, start="radius").step(learner, x, y)
        Friendly(ball=ball, m=2, omega=0.1).step(learner, x, y)
        Pgd(steps=2, restarts=2)(net, x, y, ball, ImageRng(0, range(6)))
