"""Radii as text: parsed from text, and written as text."""

import pytest

from freeat.errors import InputError
from freeat.units import parse_radii, radius_text


def test_single_radius_list_and_range() -> None:
    assert parse_radii("8/255") == (8 / 255,)
    assert parse_radii("0.1, 0.2") == (0.1, 0.2)
    assert parse_radii("1/255:9/255:1/255") == tuple(k / 255 for k in range(1, 10))
    assert parse_radii("0.1:0.5:0.1") == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert parse_radii("64/255:192/255:32/255") == tuple(k / 255 for k in (64, 96, 128, 160, 192))
    assert parse_radii("0,0:0.2:0.1") == (0.0, 0.1, 0.2)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1:2", "0.2:0.1:0.1", "0:1:0", "0:1:-0.1", "1/0", "0:1:0.0001"]
)
def test_invalid_radii_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_radii(text)


@pytest.mark.parametrize(
    ("eps", "text"),
    [
        (8 / 255, "8/255"),
        (0.5, "0.5"),
        (128 / 255, "128/255"),
        (0.0, "0"),
        (1 / 7, "1/7"),
        (0.03137, "0.03137"),
        (2.5 / 255, "1/102"),
    ],
)
def test_radii_are_written_as_they_are_typed(eps: float, text: str) -> None:
    assert radius_text(eps) == text
