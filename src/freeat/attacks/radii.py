"""Radii as people write and read them: one, a list, or a range."""

from collections.abc import Iterable
from fractions import Fraction

from freeat.errors import InputError
from freeat.units import parse_radius

MOST = 1000


def parse_radii(text: str) -> tuple[float, ...]:
    """``8/255``; a list ``4/255,8/255``; or a range ``1/255:9/255:1/255`` with both ends, in exact arithmetic."""
    radii: list[float] = []
    for part in text.split(","):
        radii += _range(part) if ":" in part else [parse_radius(part.strip())]
    return tuple(dict.fromkeys(radii))


def _range(text: str) -> list[float]:
    try:
        first, last, step = (Fraction(word.strip()) for word in text.split(":"))
    except (ValueError, ZeroDivisionError):
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
    """Whether these radii are best read in grey levels: all are 255ths, and none is a short decimal."""
    positive = [eps for eps in radii if eps > 0]
    return bool(positive) and all(radius_text(eps).endswith("/255") for eps in positive)


def radius_text(eps: float) -> str:
    """A radius in 255ths where it is one and no short number says it better."""
    levels, plain = eps * 255, f"{eps:g}"
    return f"{round(levels)}/255" if abs(levels - round(levels)) < 1e-6 and len(plain) > 5 else plain
