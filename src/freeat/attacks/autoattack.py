"""AutoAttack (Croce and Hein, 2020): its parts in turn, FAB by the package ``pyautoattack``, and the package's own."""

import importlib.metadata
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from freeat.attacks.apgd import TARGETS, Apgd
from freeat.attacks.result import Attack, AttackResult, Oracle, Search
from freeat.attacks.square import Square
from freeat.compute.precision import PRECISIONS
from freeat.errors import InputError, need, unknown_name
from freeat.objectives import DLR_CLASSES, Model
from freeat.rng import ImageRng
from freeat.threat import Ball

STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")
PARTS: dict[str, Callable[[str], Attack]] = {
    "apgd-ce": lambda precision: Apgd(loss="ce", precision=precision),
    "apgd-dlr": lambda precision: Apgd(loss="dlr", precision=precision),
    "apgd-t": lambda precision: Apgd(loss="t", precision=precision),
    "fab": lambda precision: Fab(targeted=False, precision=precision),
    "fab-t": lambda precision: Fab(precision=precision),
    "square": lambda precision: Square(),  # in fp32: rounded scores make a long search weaker
}
"""The parts of AutoAttack, each a function of the arithmetic of its gradients."""
NORMS = {"l2": "L2", "linf": "Linf"}


@dataclass(frozen=True, kw_only=True)
class AutoAttack:
    """The parts of AutoAttack one after another, each on the images that survived; by default ``standard``.

    APGD and Square are the built-in ones, FAB is that of pyautoattack on the same frozen model. No part's draws depend
    on the batch. A loss, where asked for, is the largest cross-entropy that the parts saw of an image.

    Args:
        parts: two or more of ``apgd-ce``, ``apgd-dlr``, ``apgd-t``, ``fab``, ``fab-t`` and ``square``.
        precision: the arithmetic of the gradients. Square's scores are in fp32, and correctness is decided in it.

    Raises:
        InputError: a part is unknown, or there are fewer than two.
    """

    parts: tuple[str, ...] = STANDARD
    precision: str = "fp32"
    black_box: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for part in self.parts:
            if (counted := re.fullmatch(r"(.+?)(-\d+)+", part)) and counted[1] in PARTS:
                raise InputError(
                    f"part {part!r} of AutoAttack: parts take no numbers of steps, restarts or queries; write "
                    f"{counted[1]!r}, or run {part!r} as an attack of its own"
                )
            if part not in PARTS:
                raise unknown_name("part of AutoAttack", part, PARTS)
        if len(self.parts) < 2:
            raise InputError(
                f"AutoAttack of {len(self.parts)} parts: name two or more of {', '.join(PARTS)}, or use one by itself"
            )
        _check_precision(self.precision)

    @property
    def name(self) -> str:
        """The name of the attack, without ``precision``."""
        return "autoattack" if self.parts == STANDARD else "+".join(self.parts)

    @property
    def package(self) -> str | None:
        """The package that runs FAB, with its version; None without FAB."""
        return _version() if any(part in self.parts for part in ("fab", "fab-t")) else None

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        package = self.package  # missing, it is said before the other parts have taken their time
        oracle = Oracle(f, "fp32", x)
        search = Search(oracle, x, y)
        notes: dict[str, None] = {}
        search.confirm(search.all_rows, x, torch.zeros_like(x))
        for part in self.parts:
            rows = search.all_rows[~search.fooled]
            if not len(rows):
                break
            attack = PARTS[part](self.precision)
            found = attack(f, x[rows], y[rows], ball, rng.select(rows.tolist()), with_loss=with_loss)
            search.confirm(rows, ball.apply(x[rows], found.delta), found.delta)
            if found.loss is not None:
                search.update(rows, found.delta, found.loss, None)
            oracle.cost.gradient_evaluations += found.cost.gradient_evaluations
            oracle.cost.forward_passes += found.cost.forward_passes
            notes |= dict.fromkeys(found.notes)
        by = f"{', '.join(self.parts)}; seed {rng.seed}" + (f"; FAB by {package}" if package else "")
        return search.result(with_loss=with_loss, notes=(by, *notes))


@dataclass(frozen=True, kw_only=True)
class Fab:
    """FAB (Croce and Hein, 2020), which looks for the smallest perturbation that fools; by pyautoattack.

    As in AutoAttack it takes 100 steps from the image itself, so that it draws nothing. An image that it cannot fool in
    the ball keeps δ = 0. A loss, where asked for, is the larger of the clean one and the one at the perturbation found.

    Args:
        targeted: towards each of the 9 classes with the largest logits after the label in turn.
        precision: the arithmetic of the gradients; correctness is always decided in fp32.

    Raises:
        InputError: the precision is unknown.
    """

    targeted: bool = True
    precision: str = "fp32"
    black_box: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_precision(self.precision)

    @property
    def name(self) -> str:
        """The name of the attack, without ``precision``."""
        return "fab-t" if self.targeted else "fab"

    @property
    def package(self) -> str:
        """The package that attacks, with its version."""
        return _version()

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        package = _package()
        oracle = Oracle(f, self.precision, x)

        def logits(images: Tensor) -> Tensor:
            like_x = images.to(x.dtype).contiguous(memory_format=torch.channels_last)
            return oracle.logits(like_x) if torch.is_grad_enabled() else oracle.exact_logits(like_x)

        def perturbed(images: Tensor) -> Tensor:
            fab = package.fab_pt.FABAttack_PT(
                logits,
                norm=NORMS[ball.norm],
                eps=ball.eps,
                targeted=self.targeted,
                n_target_classes=min(TARGETS, oracle.classes - 1),
                device=x.device,
            )
            found: Tensor = fab.perturb(images, y)
            return found

        return _by_package(perturbed, oracle, x, y, ball, with_loss=with_loss)


@dataclass(frozen=True, kw_only=True)
class PyAutoAttack:
    """AutoAttack ``standard``, or one part of it, as pyautoattack itself runs it: the reference for `AutoAttack`.

    The seed is always passed (the package's own default is the time). The package draws for a batch, so unlike those
    of the built-in attacks its draws depend on the batch. A loss is that of `Fab`.
    """

    part: str = "standard"

    def __post_init__(self) -> None:
        if self.part not in ("standard", *PARTS):
            raise unknown_name("part of AutoAttack", self.part, ("standard", *PARTS))

    @property
    def name(self) -> str:
        return "pyautoattack" if self.part == "standard" else f"pyautoattack-{self.part}"

    @property
    def black_box(self) -> bool:
        return self.part == "square"

    @property
    def package(self) -> str:
        """The package that attacks, with its version."""
        return _version()

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        package = _package()
        oracle = Oracle(f, "fp32", x)
        warned: list[str] = []

        def perturbed(images: Tensor) -> Tensor:
            if oracle.classes < DLR_CLASSES and self.part in ("standard", "apgd-dlr", "apgd-t"):
                raise InputError(
                    f"{self.name}: DLR losses need {DLR_CLASSES} classes, and the model has {oracle.classes}; "
                    "use the built-in autoattack, which takes the margin instead"
                )
            adversary = package.AutoAttack(
                lambda images: oracle.logits(images.to(x.dtype)),
                norm=NORMS[ball.norm],
                eps=ball.eps,
                seed=rng.seed,
                version="custom",
                attacks=list(STANDARD) if self.part == "standard" else [self.part],
                device=x.device,
            )
            targets = min(TARGETS, oracle.classes - 1)
            adversary.apgd.n_restarts = adversary.fab.n_restarts = 1  # as in version "standard"
            adversary.apgd_targeted.n_target_classes = adversary.fab.n_target_classes = targets
            with _collected(adversary.logger, warned):
                found: Tensor = adversary.run_standard_evaluation(images, y, batch_size=len(x))[0]
            return found

        result = _by_package(perturbed, oracle, x, y, ball, with_loss=with_loss)
        sentences = (f"AutoAttack warns: {_shortened(text)}" for text in warned)
        return replace(result, notes=(f"{self.package}: {self.part}; seed {rng.seed}", *sentences))


def _check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)


def _package() -> Any:
    try:
        return need("pyautoattack", extra="autoattack", what="FAB")
    except InputError as missing:
        raise InputError(
            f"{missing}, or run AutoAttack without FAB, e.g. --attack apgd-ce+apgd-t+square"
        ) from None


def _version() -> str:
    _package()
    return f"pyautoattack {importlib.metadata.version('pyautoattack')}"


def _by_package(
    perturbed: Callable[[Tensor], Tensor],
    oracle: Oracle,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    *,
    with_loss: bool,
) -> AttackResult:
    """The result of an attack of the package, whose perturbed images are projected and decided here."""
    if ball.box != (0.0, 1.0):
        raise InputError(
            f"pyautoattack keeps images in [0, 1], but the box is {ball.box}; use a built-in attack"
        )
    search = Search(oracle, x, y)
    search.confirm(search.all_rows, x, torch.zeros_like(x))
    if ball.eps > 0 and len(x):  # the package divides by ε
        # It reshapes with view(), which needs images that are contiguous in NCHW.
        images = x.float().contiguous(memory_format=torch.contiguous_format)
        with _undisturbed(x.device):
            found = perturbed(images).to(x.dtype)
        delta = ball.confine(x, ball.project(found - x))
        search.confirm(search.all_rows, ball.apply(x, delta), delta)
    return search.result(with_loss=with_loss)


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
