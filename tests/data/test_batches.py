"""Batches: every image once per epoch, each batch a pure function of its number."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freeat.data.batches import Batches, updates_for
from freeat.errors import InputError

SIZES = st.integers(1, 60)


@given(n=SIZES, size=SIZES, epoch=st.integers(0, 3))
def test_an_epoch_holds_every_image_once(n: int, size: int, epoch: int) -> None:
    batches = Batches(n=n, size=size, seed=1)
    first = epoch * batches.per_epoch + 1
    parts = [batches(t) for t in range(first, first + batches.per_epoch)]
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert sum(map(len, parts)) / len(parts) == pytest.approx(batches.mean_size)
    # All are of the size asked for but the last, which takes in a lone image: batch norm needs two.
    assert all(len(part) == min(size, n) for part in parts[:-1])
    assert len(parts[-1]) <= size + 1
    assert len(parts[-1]) > 1 or n == 1 or size == 1


@given(n=SIZES, size=SIZES, t=st.integers(1, 10**9))
def test_independent_batches_repeat_no_image(n: int, size: int, t: int) -> None:
    batches = Batches(n=n, size=size, seed=1, sampling="independent")
    rows = batches(t).tolist()
    assert len(set(rows)) == len(rows) == min(n, size) == batches.mean_size
    assert all(0 <= row < n for row in rows)


def test_an_independent_batch_does_not_cost_an_order_of_all_images() -> None:
    batches = Batches(n=10**15, size=128, seed=1, sampling="independent")
    assert len(set(batches(3).tolist())) == 128


@pytest.mark.parametrize("sampling", ["epochs", "independent"])
def test_batches_depend_on_seed_and_number_only(sampling: str) -> None:
    one, same, other = (Batches(n=40, size=8, seed=s, sampling=sampling) for s in (3, 3, 4))  # type: ignore[arg-type]
    forwards = [one(t).tolist() for t in range(1, 13)]
    backwards = [same(t).tolist() for t in range(12, 0, -1)]
    assert forwards == backwards[::-1]
    assert forwards != [other(t).tolist() for t in range(1, 13)]
    assert len({tuple(rows) for rows in forwards}) == 12


def test_epochs_have_different_orders() -> None:
    batches = Batches(n=30, size=30, seed=0)
    assert batches(1).tolist() != batches(2).tolist()


def test_updates_are_epochs_times_batches() -> None:
    assert updates_for(200, 50_000, 128) == 200 * 391
    assert updates_for(0.5, 100, 10) == 5
    assert updates_for(30, 129, 128) == 30, "a last batch of one image joins the one before it"
    assert updates_for(30, 130, 128) == 60
    with pytest.raises(InputError, match="make no update"):
        updates_for(0.01, 10, 10)


@given(n=SIZES, size=SIZES, epochs=st.integers(1, 5))
def test_updates_are_whole_passes_over_the_images(n: int, size: int, epochs: int) -> None:
    batches = Batches(n=n, size=size, seed=0)
    seen = sum(len(batches(t)) for t in range(1, updates_for(epochs, n, size) + 1))
    assert seen == epochs * n


def test_bad_batches_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'independent'"):
        Batches(n=4, size=2, seed=0, sampling="independant")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="batch size 0"):
        Batches(n=4, size=0, seed=0)
