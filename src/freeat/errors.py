"""The one exception for bad input: its message holds the value, the rule and the remedy."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input. The command line prints the message and exits with 2; nothing was written."""


def wrong_type(name: str, value: object, remedy: str) -> InputError:
    """The error for a value that is not of the kind an argument needs."""
    plain = isinstance(value, str | int | float | type | None)
    shown = f"{value!r}, a {type(value).__name__}" if plain else f"a {type(value).__name__}"
    return InputError(f"{name} is {shown}: {remedy}")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones, with the nearest as a suggestion."""
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"unknown {kind} {name!r}: {hint}known: {', '.join(known)}")
