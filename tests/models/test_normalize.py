"""Normalization: parsed exactly, checked, and a layer in front of the model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.models.normalize import PRESETS, Normalization

FINITE = st.floats(-1e6, 1e6)
POSITIVE = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(FINITE, POSITIVE), min_size=1, max_size=4))
def test_normalization_text_round_trips(channels: list[tuple[float, float]]) -> None:
    mean, std = zip(*channels, strict=True)
    normalization = Normalization(mean=mean, std=std)
    assert Normalization.parse(str(normalization)) == normalization


def test_either_order_and_blanks_are_read() -> None:
    expected = Normalization(mean=(0.5, 0.25), std=(1.0, 2.0))
    assert Normalization.parse("std=1,2;mean=0.5,0.25") == expected
    assert Normalization.parse(" mean = 0.5, 0.25 ; std = 1, 2 ") == expected


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_known_by_name(name: str) -> None:
    normalization = Normalization.parse(name.upper())
    assert (normalization.mean, normalization.std) == PRESETS[name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cifar11", "did you mean 'cifar10'"),
        ("mean=0.5", "write it as mean="),
        ("mean=0.5;std=1;std=2", "write it as mean="),
        ("mean=0.5;sd=1", "write it as mean="),
        ("mean=a;std=1", "numbers separated by commas"),
        ("mean=0.5,;std=1", "numbers separated by commas"),
        ("mean=0.5,0.5;std=1", "2 means and 1 standard deviations"),
        ("mean=nan;std=1", "finite"),
        ("mean=0.5;std=0", "positive"),
        ("mean=0.5;std=inf", "positive and finite"),
    ],
)
def test_wrong_text_is_refused_with_the_remedy(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Normalization.parse(text)


def test_channels_must_agree_or_be_common() -> None:
    with pytest.raises(InputError, match="3 channels for images with 1"):
        Normalization.parse("cifar10").layer(1)
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Normalization.parse("mean=0.5;std=0.25").layer(3)(x), (x - 0.5) / 0.25)


def test_the_constants_are_saved_but_not_trained() -> None:
    layer = Normalization.parse("cifar10").layer(3)
    assert set(layer.state_dict()) == {"mean", "std"}
    assert not list(layer.parameters())
