"""Properties of random crops and flips."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freeat.data import CropFlip, Images, parse_augmentation
from freeat.errors import InputError
from freeat.rng import StepRng
from rigged import Rigged


def batch(b: int, c: int = 3, h: int = 6, w: int = 5) -> torch.Tensor:
    g = torch.Generator().manual_seed(b)
    return torch.randint(1, 256, (b, c, h, w), dtype=torch.uint8, generator=g)


UNIT = st.floats(0, 1, exclude_max=True, width=32)


@given(st.lists(st.tuples(UNIT, UNIT, UNIT), min_size=1, max_size=4), st.integers(0, 4), st.booleans())
def test_every_crop_is_a_window_of_the_padded_image(
    rows: list[tuple[float, float, float]], pad: int, flip: bool
) -> None:
    x = batch(len(rows))
    out = CropFlip(pad=pad, flip=flip)(x, Rigged(torch.tensor(rows, dtype=torch.float32)))
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    for i, (u_top, u_left, u_flip) in enumerate(rows):
        top, left = (min(int(np.float32(u) * np.float32(2 * pad + 1)), 2 * pad) for u in (u_top, u_left))
        window = padded[i, :, top : top + 6, left : left + 5]
        expected = window[..., ::-1] if flip and u_flip < 0.5 else window
        np.testing.assert_array_equal(out[i].numpy(), expected)


def test_largest_draw_below_one_stays_inside_the_padded_image() -> None:
    top = float(np.nextafter(np.float32(1), np.float32(0)))
    x = batch(2)
    out = CropFlip(pad=4)(x, Rigged(torch.full((2, 3), top)))
    assert torch.equal(out[:, :, :2, :1], x[:, :, 4:, 4:])


def test_centre_crop_without_flip_is_the_image(device: torch.device) -> None:
    x = batch(3).to(device)
    assert torch.equal(CropFlip(pad=4)(x, Rigged(torch.full((3, 3), 0.5))), x)


def test_the_same_rng_gives_the_same_crops_and_others_give_others(device: torch.device) -> None:
    x = batch(16).to(device)
    one, again, other = (CropFlip()(x, StepRng(seed=s)) for s in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_channels_last_and_the_type_are_kept() -> None:
    x = batch(8).contiguous(memory_format=torch.channels_last)
    for augment in (CropFlip(), CropFlip(flip=False), CropFlip(pad=0)):
        out = augment(x, StepRng(seed=0))
        assert out.is_contiguous(memory_format=torch.channels_last)
        assert out.dtype == torch.uint8


def test_uint8_and_float_batches_are_cropped_alike() -> None:
    x, y = batch(8), torch.zeros(8, dtype=torch.int64)
    from_bytes, _ = Images.of(x, y).batch(torch.arange(8), CropFlip(), StepRng(seed=0))
    from_floats, _ = Images.of(x.float() / 255, y).batch(torch.arange(8), CropFlip(), StepRng(seed=0))
    assert torch.equal(from_bytes, from_floats)


def test_a_stack_is_cropped_as_its_members() -> None:
    x = batch(6).reshape(2, 3, 3, 6, 5)
    u = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
    out = CropFlip()(x, Rigged(u))
    assert torch.equal(out[1], CropFlip()(x[1], Rigged(u[1])))


def test_it_runs_on_the_meta_device() -> None:
    out = CropFlip()(batch(4).to("meta"), StepRng(seed=0))
    assert out.is_meta
    assert out.shape == (4, 3, 6, 5)


def test_augmentations_are_parsed_by_name() -> None:
    assert parse_augmentation("none") is None
    assert parse_augmentation("Crop") == CropFlip(flip=False)
    assert parse_augmentation("flip") == CropFlip(pad=0)
    assert parse_augmentation("crop-flip") == CropFlip()
    assert parse_augmentation("auto", CropFlip(pad=1)) == CropFlip(pad=1)
    with pytest.raises(InputError, match="did you mean 'crop-flip'"):
        parse_augmentation("cropflip")
    with pytest.raises(InputError, match="0 or more"):
        CropFlip(pad=-1)
