"""Packages that only some parts need: imported where they are used, and named with their remedy where they are not."""

import importlib
import re
import warnings
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType

from freeat.errors import InputError

FOR_DEVELOPERS = ("dev", "docs", "lint", "test")
_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+)(?P<range>[^;]*);\s*extra == ['\"](?P<extra>[\w-]+)['\"]")


def need(module: str, *, extra: str, what: str) -> ModuleType:
    """A module of an extra; where it is missing, ``what`` needs it and the error says how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a package says of its own insides while it is imported
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{what} needs the package {error.name}, which is not installed: {install_command(extra)}"
        ) from None


def install_command(extra: str) -> str:
    """What a user types to get an extra."""
    return f"pip install 'freeat[{extra}]'"


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package of an extra, and the version that is installed here, if one is."""

    extra: str
    package: str
    installed: str | None


def packages() -> list[Package]:
    """The packages of every extra meant for users, as the metadata of the installed freeat name them."""
    found = (_REQUIREMENT.match(line) for line in metadata.requires("freeat") or ())
    return [
        Package(extra=match["extra"], package=match["package"], installed=_version(match["package"]))
        for match in found
        if match and match["extra"] not in FOR_DEVELOPERS and match["package"] != "freeat"
    ]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
