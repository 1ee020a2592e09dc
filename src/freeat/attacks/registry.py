"""Attacks by the names people write.

::

    name  =  fgsm [ "-" loss ] | pgd [ "-" loss ] [ "-" steps [ "-" restarts ] ] | square [ "-" queries ]
             | autoattack | autoattack-square | part | part "+" part …
    loss  =  ce | margin | cw | dlr
    part  =  apgd-ce | apgd-dlr | apgd-t | fab | fab-t | square

``pgd`` is ``pgd-10``, ``cw`` another word for the margin loss, ``square`` has 5000 queries. ``autoattack-square``
is pyautoattack's own Square attack, ``square`` alone is ours; ``apgd-ce+fab`` runs parts of AutoAttack one after
another.
"""

from typing import cast

from freeat.attacks.autoattack import PARTS, AutoAttack
from freeat.attacks.pgd import Iterate, Pgd
from freeat.attacks.result import Attack
from freeat.attacks.square import Square
from freeat.errors import InputError, unknown_name
from freeat.objectives import LOSS_NAMES, LossName
from freeat.threat import Start

EXAMPLES = {
    "fgsm": "one step of length ε from the image itself",
    "pgd-10": "PGD, 10 steps of ε/4 from a random start",
    "pgd-50-10": "PGD, 50 steps from 10 random starts",
    "pgd-margin-50": "PGD on the margin (CW) loss",
    "pgd-dlr-50": "PGD on the difference-of-logits ratio",
    "square": "Square attack: 5000 queries, no gradients",
    "square-1000": "Square attack with 1000 queries",
    "autoattack": "AutoAttack standard, by pyautoattack",
    "apgd-ce": "AutoAttack's APGD on cross-entropy alone",
    "apgd-dlr": "AutoAttack's APGD on DLR alone",
    "apgd-t": "AutoAttack's targeted APGD alone",
    "fab": "AutoAttack's FAB alone",
    "fab-t": "AutoAttack's targeted FAB alone",
    "autoattack-square": "AutoAttack's Square attack alone",
}
"""The names shown to a newcomer; every number of steps, restarts and queries works."""


def parse_attack(
    text: str,
    *,
    iterate: Iterate = "worst",
    alpha: float | None = None,
    start: Start | None = None,
    precision: str = "fp32",
) -> Attack:
    """The attack that ``text`` means. The options are PGD's, but ``precision`` is Square's too."""
    written = text.lower().replace("_", "-")
    if "+" in written:
        return AutoAttack(parts=tuple(written.split("+")))
    words = written.split("-")
    family, rest = words[0], words[1:]
    if family == "fgsm" and len(rest) <= 1:
        loss = _loss(text, rest[0]) if rest else "ce"
        return Pgd(steps=1, start="zero", alpha=alpha, iterate=iterate, loss=loss, precision=precision)
    if family == "pgd":
        return _pgd(text, rest, iterate=iterate, alpha=alpha, start=start or "uniform", precision=precision)
    if family == "square" and len(rest) <= 1:
        return Square(queries=_count(text, rest[0]) if rest else 5000, precision=precision)
    part = "square" if words == ["autoattack", "square"] else written
    if part == "autoattack":
        return AutoAttack()
    if part in PARTS:
        return AutoAttack(parts=(part,))
    raise unknown_name("attack", text, EXAMPLES)


def _pgd(
    text: str, rest: list[str], *, iterate: Iterate, alpha: float | None, start: Start, precision: str
) -> Pgd:
    loss: LossName = "ce"
    if rest and not rest[0].isdecimal():
        loss = _loss(text, rest.pop(0))
    if len(rest) > 2:
        raise InputError(f"attack {text!r}: write pgd-STEPS or pgd-STEPS-RESTARTS, e.g. pgd-50-10")
    counts = [_count(text, word) for word in rest]
    steps, restarts = (*counts, *(10, 1)[len(counts) :])
    return Pgd(
        steps=steps,
        restarts=restarts,
        alpha=alpha,
        start=start,
        iterate=iterate,
        loss=loss,
        precision=precision,
    )


def _loss(text: str, word: str) -> LossName:
    """The loss that a word of a name means."""
    if word not in (*LOSS_NAMES, "cw"):
        raise unknown_name("attack", text, EXAMPLES)
    return cast("LossName", "margin" if word == "cw" else word)


def _count(text: str, word: str) -> int:
    if not word.isdecimal():
        raise unknown_name("attack", text, EXAMPLES)
    return int(word)
