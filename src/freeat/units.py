"""Numbers as people write them: radii and steps in input units, e.g. ``8/255``, lists and ranges of radii."""

import math
from collections.abc import Iterable
from fractions import Fraction

from freeat.errors import InputError

LARGEST_COUNT = 10**12
"""The largest number of images, updates or anything else that is counted."""
LARGEST_NUMBER = 1e38
"""The largest radius, rate or weight: it fits into 32-bit floating point."""


def parse_number(text: object, such_as: str = "one such as 10 or 0.1") -> float:
    """A number, written as such or as a fraction; ``such_as`` is the remedy where it is none."""
    try:
        if isinstance(text, str) and text.count("/") == 1:
            top, bottom = text.split("/")
            return float(top) / float(bottom)
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise InputError(f"{_shown(text)} is not a number: write {such_as}") from None


def parse_whole(text: object) -> int:
    """A whole number, exact also where a float would round it."""
    try:
        return int(str(text))
    except ValueError:
        value = parse_number(text, "a whole one such as 10")
    if not value.is_integer():
        raise InputError(f"{_shown(text)} must be a whole number such as 10")
    return int(value)


def _shown(text: object) -> str:
    """A value in a message, cut where it is long."""
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def parse_finite(text: object) -> float:
    """A number that is neither infinite nor NaN."""
    value = parse_number(text)
    if not math.isfinite(value):
        raise InputError(f"{_shown(text)} must be finite")
    return value


def parse_radius(text: object) -> float:
    """A radius or step: finite and not negative."""
    value = parse_number(text, "one such as 0.1 or 8/255")
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{_shown(text)} is not a radius: it must be finite and not negative, e.g. 8/255")
    return value


MOST = 1000


def parse_radii(text: str) -> tuple[float, ...]:
    """``8/255``; a list ``4/255,8/255``; or a range ``1/255:9/255:1/255`` with both ends, in exact arithmetic."""
    radii: list[float] = []
    for part in text.split(","):
        radii += _range(part) if ":" in part else [parse_radius(part.strip())]
    return tuple(dict.fromkeys(radii))


def _range(text: str) -> list[float]:
    try:
        first, last, step = (Fraction(part.strip()) for part in text.split(":"))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InputError(
            f"{text!r} is not a range of radii: write FIRST:LAST:STEP, e.g. 1/255:9/255:1/255"
        ) from None
    if first < 0 or step <= 0 or last < first:
        raise InputError(
            f"range {text!r}: needs 0 ≤ first ≤ last and a positive step, e.g. 1/255:9/255:1/255"
        )
    count = (last - first) // step + 1
    if count > MOST:
        raise InputError(f"range {text!r} has {count} radii: at most {MOST}; take a longer step")
    return [float(first + k * step) for k in range(count)]


def in_255ths(radii: Iterable[float]) -> bool:
    """Whether every positive radius is written in 255ths by `radius_text`."""
    positive = [eps for eps in radii if eps > 0]
    return bool(positive) and all(radius_text(eps).endswith("/255") for eps in positive)


def radius_text(eps: float) -> str:
    """A radius as it was typed: a short decimal, 255ths, or another fraction of small numbers."""
    levels, plain = eps * 255, f"{eps:g}"
    if len(plain) <= 5:
        return plain
    if math.isfinite(levels) and abs(levels - round(levels)) < 1e-6:
        return f"{round(levels)}/255"
    if float(plain) == eps:
        return plain
    fraction = Fraction(eps).limit_denominator(1000)
    return str(fraction) if float(fraction) == eps else plain
