"""A user's model, algorithm or attack by import path: ``package.module:name``."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from freeat.errors import InputError, unknown_name
from freeat.files.documents import sha256

PACKAGES = ("timm", "torchvision")
"""Packages whose networks have names of their own: ``timm:resnet18`` (`freeat.models.packages`)."""


def is_import_path(name: str) -> bool:
    """Whether a name is an import path rather than the name of something built in or of a package."""
    return ":" in name and not is_of_package(name)


def is_of_package(name: str) -> bool:
    """Whether a name is that of a network of timm or torchvision."""
    package, colon, _ = name.partition(":")
    return bool(colon) and package in PACKAGES


def find_code(path: str, *, kind: str, trust_code: bool) -> object:
    """What an import path names: a model's factory, or the class of an algorithm or attack.

    It is imported only with ``trust_code``. A path typed on the command line is trusted; one that is read from a
    file is not.
    """
    module_name, _, attribute = path.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise InputError(f"{kind} {path!r} is not an import path: write package.module:name")
    if not trust_code:
        raise InputError(
            f"{kind} {path!r} would import and run code: if you trust it, name the {kind} yourself on the "
            "command line or pass --trust-code (trust_code=True in Python)"
        )
    try:
        with torch.random.fork_rng(devices=[]):  # a module may draw random numbers while it is imported
            module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail in any way while it is imported
        raise InputError(
            f"{kind} {path!r} cannot be imported: {_describe(error)}; "
            f"check that {module_name} is installed or on PYTHONPATH and imports by itself"
        ) from error
    try:
        found: object = attrgetter(attribute)(module)
    except AttributeError:
        public = {
            name: value
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        }
        own = [name for name, value in public.items() if getattr(value, "__module__", "") == module_name]
        raise unknown_name(f"{kind} in module {module_name}", attribute, own or public) from None
    return found


def find_factory(path: str, *, trust_code: bool) -> Callable[..., object]:
    """The factory of a model at an import path."""
    found = find_code(path, kind="model", trust_code=trust_code)
    if not callable(found) or isinstance(found, nn.Module):
        raise InputError(
            f"model {path!r} is a ready {type(found).__name__}, not a factory: "
            "name a function or class that builds the model anew"
        )
    factory: Callable[..., object] = found
    return factory


def source_digest(path: str) -> str:
    """A digest of the file that the module of an import path was imported from; empty where it has none."""
    file = getattr(sys.modules.get(path.partition(":")[0]), "__file__", None)
    return sha256(Path(file)) if file is not None and Path(file).is_file() else ""


def call_factory(path: str, factory: Callable[..., object], args: Mapping[str, object]) -> nn.Module:
    """The model that ``factory(**args)`` returns."""
    _check_arguments(path, factory, args)
    try:
        model = factory(**args)
    except Exception as error:
        raise InputError(f"model {path!r} failed to build: {_describe(error)}; check --model-args") from error
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model {path!r} returned {type(model).__name__}, not a torch.nn.Module: "
            "name a function or class that builds the model"
        )
    if any(is_lazy(parameter) or parameter.is_meta for parameter in model.parameters()):
        raise InputError(
            f"model {path!r} has weights without values (lazy layers, or torch's meta device): "
            "let the factory give every layer its sizes and build it on the CPU"
        )
    return model


def _check_arguments(path: str, factory: Callable[..., Any], args: Mapping[str, object]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return  # some built-in callables have none; then the call itself fails
    try:
        signature.bind(**args)
    except TypeError as error:
        raise InputError(
            f"model {path!r} does not take the arguments {dict(args)}: {error}; "
            f"its signature is {signature}, give the values with --model-args"
        ) from None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
