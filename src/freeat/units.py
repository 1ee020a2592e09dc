"""Numbers as people write them: radii and steps in input units, e.g. ``8/255``."""

import math

from freeat.errors import InputError


def parse_number(text: object) -> float:
    """A number, written as such or as a fraction."""
    try:
        if isinstance(text, str) and text.count("/") == 1:
            top, bottom = text.split("/")
            return float(top) / float(bottom)
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, ZeroDivisionError):
        raise InputError(f"{text!r} is not a number: write one such as 0.1 or 8/255") from None


def parse_whole(text: object) -> int:
    """A whole number, exact also beyond the reach of a float."""
    try:
        return int(str(text))
    except ValueError:
        value = parse_number(text)
    if not value.is_integer():
        raise InputError(f"{text!r} must be a whole number")
    return int(value)


def parse_finite(text: object) -> float:
    """A number that is neither infinite nor NaN."""
    value = parse_number(text)
    if not math.isfinite(value):
        raise InputError(f"{text!r} must be finite")
    return value


def parse_radius(text: object) -> float:
    """A radius or step: finite and not negative."""
    value = parse_number(text)
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{text!r} is not a radius: it must be finite and not negative, e.g. 8/255")
    return value
