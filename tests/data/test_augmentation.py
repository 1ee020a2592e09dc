"""Properties of random crops and flips."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freeat.data import CropFlip, Images, parse_augmentation
from freeat.data.augmentation import RandomResizedCrop
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


@given(
    st.lists(st.floats(0, 1, exclude_max=True), min_size=5, max_size=5),
    st.integers(1, 500),
    st.integers(1, 500),
)
def test_windows_lie_inside_with_the_area_and_ratio_drawn(
    draws: list[float], width: int, height: int
) -> None:
    crop = RandomResizedCrop(scale=(0.2, 0.9))
    left, top, right, bottom = crop.window(draws, width, height)
    assert 0 <= left <= right <= width
    assert 0 <= top <= bottom <= height
    w, h = right - left, bottom - top
    area = (0.2 + 0.7 * draws[0]) * width * height
    assert w * h <= area * (1 + 1e-9)
    if w < width and h < height:
        assert w * h == pytest.approx(area)
        assert w / h == pytest.approx((3 / 4) * (16 / 9) ** draws[1])


def test_the_window_of_the_whole_image_is_the_image_and_draws_follow_the_image() -> None:
    x = torch.randint(0, 256, (6, 3, 9, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole = RandomResizedCrop(scale=(1, 1), ratio=(1, 1), flip=False)
    assert torch.equal(whole(x, StepRng(0)), x)
    crop = RandomResizedCrop()
    assert torch.equal(crop(x, StepRng(0, (), 6, 0))[2:4], crop(x[2:4], StepRng(0, (), 6, 2)))
    assert crop(x.float() / 255, StepRng(1)).amax() <= 1
    stack = torch.stack([x, x])
    assert torch.equal(crop(stack, StepRng(0))[1], crop(x, StepRng(0)))


def test_flips_mirror_what_the_same_draws_give_without_them() -> None:
    x = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    plain, flipped = RandomResizedCrop(flip=False)(x, StepRng(2)), RandomResizedCrop()(x, StepRng(2))
    mirrored = [torch.allclose(a.flip(-1), b, atol=1e-5) for a, b in zip(plain, flipped, strict=True)]
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(plain, flipped, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True))
    assert 8 < sum(mirrored) < 32


@pytest.mark.parametrize("wrong", [{"scale": (0, 1)}, {"scale": (0.5, 0.2)}, {"ratio": (0, 1)}])
def test_windows_beyond_the_image_are_refused(wrong: dict[str, tuple[float, float]]) -> None:
    with pytest.raises(InputError, match="of random crops"):
        RandomResizedCrop(**wrong)  # type: ignore[arg-type]
