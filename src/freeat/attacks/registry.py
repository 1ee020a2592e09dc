"""Attacks by the names people write.

::

    name  =  fgsm [ "-" loss ] | pgd [ "-" loss ] [ "-" steps [ "-" restarts ] ] | square [ "-" queries ]
             | apgd [ "-" loss | "-t" ] [ "-" steps [ "-" restarts ] ] | fab | fab-t
             | autoattack | part "+" part … | pyautoattack [ "-" part ]
    loss  =  ce | margin | cw | dlr
    part  =  apgd-ce | apgd-dlr | apgd-t | fab | fab-t | square

``pgd`` is ``pgd-10``, ``apgd`` is ``apgd-ce-100``, ``cw`` another name of the margin loss, ``square`` has 5000 queries.
``apgd-ce+square`` runs parts of AutoAttack one after another; they take no numbers. ``pyautoattack`` and
``pyautoattack-square`` are that package's own AutoAttack and Square. ``package.module:name`` is anyone's attack
(``ImportedAttack``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from freeat.attacks.pgd import Iterate, Pgd
from freeat.attacks.result import Attack, AttackResult, Oracle, Search
from freeat.errors import InputError, unknown_name
from freeat.models.imported import find_code, is_import_path, source_digest
from freeat.objectives import LOSS_NAMES, LossName, Model
from freeat.rng import ImageRng
from freeat.threat import Ball, Start

EXAMPLES = {
    "fgsm": "one step of length ε from the image itself",
    "pgd-10": "PGD, 10 steps of ε/4 from a random start",
    "pgd-50-10": "PGD, 50 steps from 10 random starts",
    "pgd-margin-50": "PGD on the margin (CW) loss",
    "pgd-dlr-50": "PGD on the difference-of-logits ratio",
    "square": "Square attack: 5000 queries, no gradients",
    "square-1000": "Square attack with 1000 queries",
    "apgd-ce": "Auto-PGD on cross-entropy: 100 steps that choose their size",
    "apgd-ce-50-5": "Auto-PGD, 50 steps from 5 random starts",
    "apgd-dlr": "Auto-PGD on the difference-of-logits ratio",
    "apgd-t": "Auto-PGD towards 9 other classes in turn",
    "fab": "FAB, by pyautoattack",
    "fab-t": "FAB towards 9 other classes in turn, by pyautoattack",
    "autoattack": "AutoAttack standard: apgd-ce, apgd-t, fab-t, square",
    "apgd-ce+square": "parts of AutoAttack, each on the images that survived",
    "pyautoattack": "AutoAttack standard as pyautoattack itself runs it",
    "pyautoattack-square": "a part of AutoAttack as pyautoattack itself runs it",
}
"""The names that are listed; every number of steps, restarts and queries works."""


Perturb = Callable[[Model, Tensor, Tensor, Ball, ImageRng], Tensor]  # f, x, y, ball, rng to δ of x's shape


@dataclass(frozen=True, kw_only=True)
class ImportedAttack:
    """Anyone's attack: a function f(model, x, y, ball, rng) → δ, or a class that makes one without arguments.

    The model's scores decide whether an image is fooled, at x itself and at x + δ with δ projected to the ball and
    the box, whatever the function claims. One with the attribute ``black_box`` receives no gradient, and its
    queries are counted. ``source`` is the digest of its file, a part of every result's identity.
    """

    path: str
    source: str
    black_box: bool = False
    perturb: Perturb = field(repr=False, compare=False)

    @classmethod
    def of(cls, path: str, *, trust_code: bool) -> "ImportedAttack":
        """The attack at an import path, which is imported only with the user's trust."""
        found = find_code(path, kind="attack", trust_code=trust_code)
        try:
            perturb = found() if isinstance(found, type) else found
        except Exception as error:  # a user's class may fail in any way
            raise InputError(f"attack {path!r} cannot be made: {type(error).__name__}: {error}") from error
        if not callable(perturb):
            raise InputError(
                f"attack {path!r} is no function: write f(model, x, y, ball, rng), which returns δ"
            )
        black_box = bool(getattr(perturb, "black_box", False))
        return cls(path=path, source=source_digest(path), black_box=black_box, perturb=perturb)

    @property
    def name(self) -> str:
        return self.path

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        oracle = Oracle(f, "fp32", x)
        search = Search(oracle, x, y)
        with torch.set_grad_enabled(not self.black_box):
            found = self.perturb(oracle.logits, x, y, ball, rng)
        queries = torch.full((len(x),), oracle.cost.forward_passes // len(x)) if self.black_box else None
        if not isinstance(found, Tensor) or found.shape != x.shape:
            shown = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"attack {self.path!r} returned {shown}: it must return δ of shape {tuple(x.shape)}"
            )
        for delta in (torch.zeros_like(x), ball.confine(x, ball.project(found.detach().to(x.dtype)))):
            search.confirm(search.all_rows, ball.apply(x, delta), delta)
        return search.result(with_loss=with_loss, queries=queries)


def parse_attack(
    text: str,
    *,
    iterate: Iterate = "worst",
    alpha: float | None = None,
    start: Start | None = None,
    precision: str = "fp32",
    trust_code: bool = False,
) -> Attack:
    """The attack that ``text`` means. The options are PGD's, but ``precision`` is that of every built-in attack.

    An import path, ``package.module:name``, is imported only with ``trust_code``.
    """
    if is_import_path(text):
        return ImportedAttack.of(text, trust_code=trust_code)
    written = text.lower().replace("_", "-")
    family, *rest = written.split("-")
    if "+" in written or family in ("autoattack", "pyautoattack", "fab"):
        return _autoattack(text, written, precision)
    if family == "fgsm" and len(rest) <= 1:
        loss = _loss(text, rest[0]) if rest else "ce"
        return Pgd(steps=1, start="zero", alpha=alpha, iterate=iterate, loss=loss, precision=precision)
    if family == "pgd":
        return _pgd(text, rest, iterate=iterate, alpha=alpha, start=start or "uniform", precision=precision)
    if family == "apgd":
        return _apgd(text, rest, precision)
    if family == "square" and len(rest) <= 1:
        from freeat.attacks.square import Square

        return Square(queries=_count(text, rest[0]) if rest else 5000, precision=precision)
    raise unknown_name("attack", text, EXAMPLES, meant="autoattack" if written == "aa" else None)


def _autoattack(text: str, written: str, precision: str) -> Attack:
    from freeat.attacks.autoattack import AutoAttack, Fab, PyAutoAttack

    if written == "autoattack":
        return AutoAttack(precision=precision)
    if "+" in written:
        return AutoAttack(parts=tuple(written.split("+")), precision=precision)
    if written in ("fab", "fab-t"):
        return Fab(targeted=written == "fab-t", precision=precision)
    package, _, part = written.partition("-")
    if package == "pyautoattack":
        return PyAutoAttack(part=part or "standard")
    raise unknown_name("attack", text, EXAMPLES)


def _apgd(text: str, rest: list[str], precision: str) -> Attack:
    from freeat.attacks.apgd import STEPS, Apgd, ApgdLoss

    loss: ApgdLoss = "ce"
    if rest and not rest[0].isdecimal():
        named = rest.pop(0)
        loss = "t" if named == "t" else _loss(text, named)
    steps, restarts = _steps_and_restarts(text, rest, "apgd-ce", STEPS)
    return Apgd(loss=loss, steps=steps, restarts=restarts, precision=precision)


def _pgd(
    text: str, rest: list[str], *, iterate: Iterate, alpha: float | None, start: Start, precision: str
) -> Pgd:
    loss: LossName = "ce"
    if rest and not rest[0].isdecimal():
        loss = _loss(text, rest.pop(0))
    steps, restarts = _steps_and_restarts(text, rest, "pgd", 10)
    return Pgd(
        steps=steps,
        restarts=restarts,
        alpha=alpha,
        start=start,
        iterate=iterate,
        loss=loss,
        precision=precision,
    )


def _steps_and_restarts(text: str, rest: list[str], family: str, steps: int) -> tuple[int, int]:
    """The counts at the end of a name; by default ``steps`` and one start."""
    if len(rest) > 2:
        raise InputError(
            f"attack {text!r}: write {family}-STEPS or {family}-STEPS-RESTARTS, e.g. {family}-50-10"
        )
    counts = [*(_count(text, part) for part in rest), *(steps, 1)[len(rest) :]]
    return counts[0], counts[1]


def _loss(text: str, part: str) -> LossName:
    """The loss named by a part of an attack's name."""
    if part not in (*LOSS_NAMES, "cw"):
        raise unknown_name("attack", text, EXAMPLES)
    return cast("LossName", "margin" if part == "cw" else part)


def _count(text: str, part: str) -> int:
    if not part.isdecimal():
        raise unknown_name("attack", text, EXAMPLES)
    if len(part) > 6:
        raise InputError(f"attack {text[:60]!r}: its numbers must be less than a million")
    return int(part)
