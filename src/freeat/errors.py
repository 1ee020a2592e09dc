"""The one exception for bad input, text that is safe to print, packages that only some parts need, the version."""

import difflib
import importlib
import re
import warnings
from collections import UserDict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


class InputError(ValueError):
    """Bad input: the message holds the value, the rule and the remedy.

    It is a ``ValueError``. Every function of the package raises it for arguments, files and settings that it refuses,
    before anything is written. The command line prints the message and exits with code 2.

    Args:
        message: The value, the rule that it breaks, and the remedy, in one sentence.

    Example:
        >>> import freeat
        >>> try:
        ...     freeat.L2(-1)
        ... except freeat.InputError as error:
        ...     print(error)
        -1 is not a radius: it must be finite and not negative, e.g. 8/255
    """


# Control characters but newline and tab; marks that reverse, hide or join text; halves of surrogate pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text without characters that a terminal or page would obey: names in files are not trusted."""
    return _UNPRINTABLE.sub("", text)


def is_text(text: str) -> bool:
    """Whether it is Unicode: JSON can hold half a character, and the name of a file any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def wrong_type(name: str, value: object, remedy: str) -> InputError:
    """The error for a value that is not of the kind an argument needs."""
    plain = isinstance(value, str | int | float | type | None)
    shown = f"{value!r}, a {type(value).__name__}" if plain else f"a {type(value).__name__}"
    return InputError(f"{name} is {shown}: {remedy}")


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, meant: str | None = None, why: str = ""
) -> InputError:
    """The error for a name that is not among the known ones, with the one meant, or the nearest, as a suggestion."""
    known = sorted(known)
    near = [meant] if meant else difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? {why}" if near else ""
    return InputError(f"unknown {kind} {name!r}: {hint}known: {', '.join(known)}")


class ImportedOnUse(UserDict[str, Any]):
    """Values by name, each written as "module:attribute" and imported when it is first used."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            self.data[name] = value = getattr(importlib.import_module(module), attribute)
        return value


FOR_DEVELOPERS = ("dev", "docs", "lint", "test")
_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+)(?P<range>[^;]*);\s*extra == ['\"](?P<extra>[\w-]+)['\"]")


def need(module: str, *, extra: str, what: str) -> ModuleType:
    """Import a module of an extra; where it is missing, the error says that ``what`` needs it and how to install it.

    A package with compiled parts that do not fit the installed torch raises what it will while it is imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a package about its own internals
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{what} needs the package {error.name}, which is not installed: {install_command(extra)}"
        ) from None
    except Exception as error:
        raise InputError(
            f"{what} needs the package {module}, which is installed and does not import ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason given'}): install builds of it and of torch "
            "that belong together"
        ) from error


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'freeat[{extra}]'"


@dataclass(frozen=True, kw_only=True)
class OptionalPackage:
    """A package of an extra, and the version that is installed here, if one is."""

    extra: str
    package: str
    installed: str | None


def optional_packages() -> list[OptionalPackage]:
    """The packages of every extra meant for users, from the metadata of the installed freeat."""
    found = (_REQUIREMENT.match(line) for line in metadata.requires("freeat") or ())
    return [
        OptionalPackage(extra=match["extra"], package=match["package"], installed=_version(match["package"]))
        for match in found
        if match and match["extra"] not in FOR_DEVELOPERS and match["package"] != "freeat"
    ]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
