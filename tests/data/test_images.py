"""Selections, neighbours and batches of images."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freeat.data import CropFlip, Images
from freeat.data.images import seeded_order, stratified_order, stratified_rows
from freeat.errors import InputError


def images(n: int = 60, classes: int = 3, c: int = 3, side: int = 4) -> Images:
    g = torch.Generator().manual_seed(n)
    x = torch.randint(0, 256, (n, c, side, side), dtype=torch.uint8, generator=g)
    return Images.of(x, torch.arange(n) % classes)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
def test_subsets_are_nested_and_a_subset_of_a_subset_is_the_subset(n: int, m: int, seed: int) -> None:
    small, large = sorted((n, m))
    outer = images().subset(large, seed)
    inner = images().subset(small, seed)
    assert set(inner.index.tolist()) <= set(outer.index.tolist())
    assert torch.equal(outer.subset(small, seed).index, inner.index)
    assert len(inner) == small


def test_the_subset_of_all_images_is_the_set_itself() -> None:
    assert images().subset(60, seed=3).digest == images().digest


def test_another_seed_gives_another_subset() -> None:
    assert not torch.equal(images().subset(30, 0).index, images().subset(30, 1).index)


def test_a_subset_keeps_every_image_with_its_label_and_number() -> None:
    full = images()
    part = full.subset(17, seed=1)
    assert torch.equal(part.x, full.x[part.index])
    assert torch.equal(part.y, full.y[part.index])


def test_the_seeded_order_is_a_fixed_permutation() -> None:
    order = seeded_order(np.arange(8), 0, "subset")
    assert sorted(order) == list(range(8))
    assert order.tolist() == [6, 0, 3, 4, 2, 7, 1, 5]


@given(st.lists(st.integers(0, 4), min_size=2, max_size=80), st.data())
def test_samples_to_evaluate_are_nested_with_classes_in_proportion(
    labels: list[int], data: st.DataObject
) -> None:
    """Sainte-Laguë's method may miss a share by one image or a little more where one class is most of them."""
    y = torch.tensor(labels)
    whole = Images.of(torch.zeros(len(y), 1, 2, 2), y)
    small, large = sorted(data.draw(st.integers(1, len(y))) for _ in range(2))
    inner, outer = whole.sample(small), whole.sample(large)
    assert len(inner) == small
    assert set(inner.index.tolist()) <= set(outer.index.tolist())
    assert torch.equal(inner.y, y[inner.index])
    assert inner.index.tolist() == sorted(inner.index.tolist())
    for label in set(labels):
        share = int((y == label).sum()) * small / len(y)
        assert abs(int((inner.y == label).sum()) - share) < 1.5


def test_of_equal_classes_every_sample_has_them_as_equal_as_can_be() -> None:
    whole = Images.of(torch.zeros(90, 1, 2, 2), torch.arange(90) // 30)
    for n in range(1, 91):
        counts = whole.sample(n).y.bincount(minlength=3)
        assert counts.max() - counts.min() <= 1


def test_a_sample_does_not_depend_on_the_order_of_the_images() -> None:
    whole = images()
    shuffled = whole.take(torch.randperm(60, generator=torch.Generator().manual_seed(0)))
    assert sorted(shuffled.sample(17).index.tolist()) == whole.sample(17).index.tolist()


def test_a_sample_of_as_many_images_as_there_are_is_all_of_them() -> None:
    whole = images()
    assert whole.sample(60) is whole.sample(61) is whole.sample() is whole
    with pytest.raises(InputError, match="at least 1"):
        whole.sample(0)


def test_the_stratified_order_is_a_fixed_permutation() -> None:
    order = stratified_order(np.repeat([0, 1], [6, 3]), np.arange(9), 0, "evaluation sample")
    assert sorted(order) == list(range(9))
    assert [int(i >= 6) for i in order] == [0, 1, 0, 0, 1, 0, 0, 1, 0]


@given(st.lists(st.integers(0, 4), min_size=2, max_size=80), st.data())
def test_a_stratified_choice_has_every_class_in_proportion(labels: list[int], data: st.DataObject) -> None:
    y = np.array(labels, np.int64)
    count = data.draw(st.integers(1, len(y) - 1))
    rows = stratified_rows(y, np.arange(len(y)), count, 0, "split")
    assert len(set(rows.tolist())) == count
    for label in set(labels):
        share = (y == label).sum() * count / len(y)
        assert abs((y[rows] == label).sum() - share) < 1


@pytest.mark.parametrize("held_out", [0.2, 12])
def test_a_split_is_stratified_disjoint_and_complete(held_out: float | int) -> None:
    rest, validation = images().split(held_out, seed=4)
    assert (len(rest), len(validation)) == (48, 12)
    assert torch.bincount(validation.y).tolist() == [4, 4, 4]
    assert sorted(torch.cat([rest.index, validation.index]).tolist()) == list(range(60))
    assert torch.equal(validation.index, images().split(held_out, seed=4)[1].index)


def test_a_neighbour_differs_in_one_example_and_keeps_its_number() -> None:
    full = images()
    other = full.neighbour(7, torch.zeros(3, 4, 4, dtype=torch.uint8), 2)
    changed = (full.x != other.x).flatten(1).any(1)
    assert changed.nonzero().flatten().tolist() == [7]
    assert other.y[7] == 2
    assert torch.equal(full.index, other.index)
    assert full.digest == images().digest != other.digest


class ReadPixels:
    """Pixels that are read from somewhere, and the number of images of every reading."""

    dtype, device = torch.uint8, torch.device("cpu", 0)  # another device than "cpu", to torch

    def __init__(self, pixels: torch.Tensor, digest: str | None = None) -> None:
        self.pixels, self.shape, self.digest, self.read = pixels, pixels.shape, digest, []

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, rows: torch.Tensor) -> torch.Tensor:
        self.read.append(len(rows))
        return self.pixels[rows]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_images_that_are_not_in_memory_are_sent_to_a_device_block_by_block(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """They may exceed the memory of the host, and fit into that of a device."""
    monkeypatch.setattr("freeat.data.images.AT_ONCE", 10 * 3 * 4 * 4)
    full = images()
    pixels = ReadPixels(full.x.permute(0, 2, 3, 1))
    view = Images.stored(pixels, full.y).subset(25)
    sent = view.to(device)
    assert pixels.read == [10, 10, 5]
    assert (sent.x.device.type, sent.x.shape, sent.x.dtype) == (device, (25, 3, 4, 4), torch.uint8)
    assert sent.x.is_contiguous(memory_format=torch.channels_last)
    assert device == "meta" or sent.digest == full.subset(25).digest


def test_a_view_of_pixels_with_a_digest_reads_none_for_its_own() -> None:
    full = images()
    pixels = ReadPixels(full.x.permute(0, 2, 3, 1), digest="known")
    whole = Images.stored(pixels, full.y, digest="of the split")
    rest, held_out = whole.split(0.2)
    twin = whole.neighbour(3, full.x[0], 1)
    relabelled = Images.stored(pixels, full.y.flip(0))
    views = [
        whole,
        rest,
        held_out,
        whole.subset(20),
        whole.subset(21),
        whole.subset(20, seed=1),
        rest.subset(20),
        whole.take(torch.arange(60).flip(0)),
        twin,
        whole.neighbour(3, full.x[1], 1),
        whole.neighbour(3, full.x[0], 2),
        relabelled,
        Images.stored(ReadPixels(pixels.pixels, digest="another"), full.y).subset(20),
    ]
    assert len({view.digest for view in views}) == len(views)
    assert whole.split(0.2)[1].digest == held_out.digest
    assert whole.subset(30).subset(20).digest == whole.subset(20).digest
    assert whole.subset(60) is whole
    assert pixels.read == []
    unknown = Images.joined(rest, Images.stored(ReadPixels(pixels.pixels), full.y))
    assert unknown.digest == Images.joined(full.split(0.2)[0], full).digest


@given(st.data())
def test_views_of_views_are_what_copies_would_be(data: st.DataObject) -> None:
    """Any chain of selections, neighbours and joins, against the same operations on plain tensors."""
    view = images(12)
    x, y, index = view.x.clone(), view.y.clone(), view.index.clone()
    other, count = images(5), data.draw(st.integers(1, 4))
    for step in data.draw(st.lists(st.sampled_from(["take", "neighbour", "join"]), min_size=1, max_size=4)):
        if step == "take":
            rows = torch.tensor(data.draw(st.lists(st.integers(0, len(view) - 1), min_size=1, max_size=9)))
            view, x, y, index = view.take(rows), x[rows], y[rows], index[rows]
        elif step == "neighbour":
            i = data.draw(st.integers(0, len(view) - 1))
            view = view.neighbour(i, other.x[count], 2)
            x, y = x.clone(), y.clone()
            x[i], y[i] = other.x[count], 2
        else:
            view = Images.joined(view, other, view)
            x, y, index = (
                torch.cat([x, other.x, x]),
                torch.cat([y, other.y, y]),
                torch.cat([index, other.index, index]),
            )
    plain = Images(x=x, y=y, index=index)
    assert torch.equal(view.x, x)
    assert view.digest == plain.digest
    assert torch.equal(view.index, index)
    rows = torch.tensor([[0, len(view) - 1], [len(view) // 2, 0]])
    for found, expected in zip(view.batch(rows), plain.batch(rows), strict=True):
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()


def test_selections_and_neighbours_copy_no_pixels() -> None:
    """As for a memory-mapped split, whose validation split must not come into memory."""
    full = images()
    (pixels,) = full.parts
    rest, held_out = full.split(0.2)
    twin = full.neighbour(3, full.x[0], 1)
    for view in (
        rest,
        held_out,
        full.subset(7),
        rest.subset(7),
        full.sample(5),
        Images.joined(rest, held_out),
    ):
        assert view.parts == (pixels,)
    assert twin.parts[0] is pixels
    assert len(twin.parts[1]) == 1
    assert full.to("cpu") is full


def test_a_view_that_moves_to_a_device_takes_its_own_images_only(device: torch.device) -> None:
    view = images().subset(7)
    moved = view.to("meta")
    assert (len(moved.parts[0]), moved.shape) == (7, view.shape)
    assert torch.equal(view.to(device).x.cpu(), view.x)


def test_a_batch_is_float_in_the_unit_box_and_channels_last(device: torch.device) -> None:
    full = images().to(device)
    rows = torch.tensor([5, 5, 0])
    x, y = full.batch(rows)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x.cpu(), images().x[rows].float() / 255)
    assert y.tolist() == [2, 2, 0]


def test_rows_of_a_stack_give_a_stack_of_batches() -> None:
    x, y = images().batch(torch.tensor([[0, 1, 2], [3, 4, 5]]))
    assert x.shape == (2, 3, 3, 4, 4)
    assert y.shape == (2, 3)
    assert torch.equal(x[1], images().batch(torch.tensor([3, 4, 5]))[0])


def test_float_images_are_taken_as_they_are() -> None:
    x = torch.rand(4, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Images.of(x, torch.zeros(4, dtype=torch.int64)).batch(torch.arange(4))[0], x)


def test_digest_depends_on_pixels_and_labels_but_not_on_memory_layout() -> None:
    base = images()
    assert Images.of(base.x.contiguous(), base.y).digest == base.digest
    pixel = base.x.clone()
    pixel[0, 0, 0, 0] ^= 1
    label = base.y.clone()
    label[0] ^= 1
    assert len({base.digest, Images.of(pixel, base.y).digest, Images.of(base.x, label).digest}) == 3


def test_augmentation_without_an_rng_is_refused() -> None:
    with pytest.raises(InputError, match="rng"):
        images().batch(torch.arange(3), CropFlip())


GOOD = torch.zeros(2, 1, 2, 2)
LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(2, 2, 2), LABELS, r"\(n, C, H, W\)"),
        (torch.zeros(0, 1, 2, 2), LABELS[:0], "no empty axis"),
        (GOOD.double(), LABELS, "uint8, or float32"),
        (GOOD + 2, LABELS, r"in \[0, 1\]; divide by 255"),
        (GOOD - 0.1, LABELS, r"between -0.1"),
        (GOOD * float("nan"), LABELS, "image 0 and 1 more of 2: holds pixels that are NaN"),
        (torch.stack([GOOD[0], GOOD[1] / 0]), LABELS, "^image 1: holds pixels that are NaN or infinite"),
        (GOOD, LABELS.int(), "int64"),
        (GOOD, LABELS[:1], "one per image"),
        (GOOD, LABELS - 1, "label -1"),
    ],
)
def test_bad_images_are_refused(x: torch.Tensor, y: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Images.of(x, y)


@pytest.mark.parametrize("n", [0, 61, -3])
def test_a_subset_outside_the_set_is_refused(n: int) -> None:
    with pytest.raises(InputError, match="between 1 and the 60"):
        images().subset(n)


@pytest.mark.parametrize("held_out", [0, 60, 0.001, 1.0])
def test_split_must_leave_images_on_both_sides(held_out: float | int) -> None:
    with pytest.raises(InputError, match="each side"):
        images().split(held_out)


def test_a_neighbour_of_another_shape_or_row_is_refused() -> None:
    with pytest.raises(InputError, match="as the images are"):
        images().neighbour(0, torch.zeros(3, 4, 4), 0)
    with pytest.raises(InputError, match="0 to 59"):
        images().neighbour(60, torch.zeros(3, 4, 4, dtype=torch.uint8), 0)
