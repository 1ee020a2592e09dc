"""AutoAttack, by the package ``pyautoattack``: an adapter, not a copy."""

import importlib.metadata
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from freeat.attacks.result import AttackResult, Oracle, Search
from freeat.errors import InputError, unknown_name
from freeat.objectives import DLR_CLASSES, Model, margin
from freeat.rng import ImageRng
from freeat.threat import Ball

STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")
PARTS = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
NEED_FOUR_CLASSES = ("apgd-dlr", "apgd-t", "fab-t")
NORMS = {"l2": "L2", "linf": "Linf"}


@dataclass(frozen=True, kw_only=True)
class AutoAttack:
    """The parts of AutoAttack one after another, each on the images that survived; by default ``standard``.

    The seed is always passed (the package's own default is the time). The package draws for a batch, so unlike the
    built-in attacks its draws depend on the batch. A loss, where asked for, is the larger of the clean one and the
    one at the perturbation found.
    """

    parts: tuple[str, ...] = STANDARD

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise unknown_name("part of AutoAttack", part, PARTS)
        if not self.parts:
            raise InputError(f"AutoAttack without parts: name at least one of {', '.join(PARTS)}")

    @property
    def name(self) -> str:
        if self.parts == STANDARD:
            return "autoattack"
        joined = "+".join(self.parts)
        return f"autoattack-{joined}" if joined == "square" else joined

    @property
    def black_box(self) -> bool:
        return self.parts == ("square",)

    @property
    def package(self) -> str:
        """The package that attacks, with its version."""
        _package()
        return f"pyautoattack {importlib.metadata.version('pyautoattack')}"

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        package = _package()
        if ball.box != (0.0, 1.0):
            raise InputError(
                f"AutoAttack keeps images in [0, 1], but the box is {ball.box}; use another attack"
            )
        oracle = Oracle(f, "fp32", x)
        search = Search(oracle, x, y)
        search.confirm(search.all_rows, x, torch.zeros_like(x))
        parts, notes = _defined(self.parts, oracle.classes)
        if ball.eps > 0:  # the package divides by ε
            x_adv, warned = _run(package, parts, oracle, x, y, ball, rng.seed)
            delta = ball.confine(x, ball.project(x_adv - x))
            search.confirm(search.all_rows, ball.apply(x, delta), delta)
            notes += warned
        notes = (f"{self.package}: {', '.join(parts)}; seed {rng.seed}", *notes)
        return search.result(with_loss=with_loss, notes=notes)


def _package() -> Any:
    try:
        import pyautoattack
    except ModuleNotFoundError:
        raise InputError(
            "AutoAttack needs the package pyautoattack, which is not installed: pip install 'freeat[autoattack]'"
        ) from None
    return pyautoattack


def _defined(parts: tuple[str, ...], classes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parts that are defined for this number of classes, and a sentence on those that were replaced."""
    undefined = [part for part in parts if part in NEED_FOUR_CLASSES]
    if classes >= DLR_CLASSES or not undefined:
        return parts, ()
    kept = [part for part in parts if part not in undefined]
    kept.insert(1 if "apgd-ce" in kept else 0, "apgd-margin")
    note = (
        f"{', '.join(undefined)}: undefined with {classes} classes; APGD on the margin loss was used instead"
    )
    return tuple(kept), (note,)


def _run(
    package: Any,
    parts: tuple[str, ...],
    oracle: Oracle,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    seed: int,
) -> tuple[Tensor, tuple[str, ...]]:
    """The perturbed images, and the package's warnings."""
    names = ["apgd-dlr" if part == "apgd-margin" else part for part in parts]
    adversary = package.AutoAttack(
        lambda images: oracle.logits(images.to(x.dtype)),
        norm=NORMS[ball.norm],
        eps=ball.eps,
        seed=seed,
        version="custom",
        attacks=names,
        device=x.device,
    )
    targets = min(9, oracle.classes - 1)
    adversary.apgd.n_restarts = adversary.fab.n_restarts = 1  # as in version "standard"
    adversary.apgd_targeted.n_target_classes = adversary.fab.n_target_classes = targets
    if "apgd-margin" in parts:
        adversary.apgd.dlr_loss = margin
    warned: list[str] = []
    with _undisturbed(x.device), _collected(adversary.logger, warned):
        # The package reshapes with view(), which needs images that are contiguous in NCHW.
        images = x.float().contiguous(memory_format=torch.contiguous_format)
        x_adv, _ = adversary.run_standard_evaluation(images, y, batch_size=len(x))
    sentences = tuple(f"AutoAttack warns: {_shortened(text)}" for text in warned if "DLR loss" not in text)
    return x_adv.to(x.dtype), sentences


def _shortened(text: str) -> str:
    """A warning of the package without its pointers to a version and a page that are not here."""
    for pointer in (' Please use version="rand".', " See flags_doc.md for details."):
        text = text.replace(pointer, "")
    return text


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """The package seeds torch's global generators and takes over the trace function; both are restored."""
    trace = sys.gettrace()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            sys.settrace(trace)


@contextmanager
def _collected(logger: logging.Logger, texts: list[str]) -> Iterator[None]:
    """Warnings of the package become notes of the result instead of lines on the screen."""

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler = Collect(logging.WARNING)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
