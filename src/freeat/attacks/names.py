"""Attacks by the names people write.

::

    name  =  fgsm | pgd [ "-" loss ] [ "-" steps [ "-" restarts ] ] | square [ "-" queries ]
             | autoattack | apgd-ce | apgd-dlr | apgd-t | fab | fab-t | autoattack-square
    loss  =  ce | margin | cw | dlr

``pgd`` is ``pgd-10``, ``cw`` another word for the margin loss, ``square`` has 5000 queries. ``autoattack-square``
is pyautoattack's own Square attack, ``square`` ours.
"""

from typing import cast

from freeat.attacks.autoattack import PARTS, AutoAttack
from freeat.attacks.losses import LOSS_NAMES, LossName
from freeat.attacks.pgd import Pgd, Verdict
from freeat.attacks.square import Square
from freeat.attacks.verdict import Attack
from freeat.errors import InputError, unknown_name
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
    verdict: Verdict = "worst",
    alpha: float | None = None,
    start: Start | None = None,
    precision: str = "fp32",
) -> Attack:
    """The attack that ``text`` means. The options are PGD's, but ``precision`` is Square's too."""
    words = text.lower().replace("_", "-").split("-")
    family, rest = words[0], words[1:]
    if family == "fgsm" and not rest:
        return Pgd(steps=1, start="zero", alpha=alpha, verdict=verdict, precision=precision)
    if family == "pgd":
        return _pgd(text, rest, verdict=verdict, alpha=alpha, start=start or "uniform", precision=precision)
    if family == "square" and len(rest) <= 1:
        return Square(queries=_count(text, rest[0]) if rest else 5000, precision=precision)
    part = "square" if words == ["autoattack", "square"] else "-".join(words)
    if part == "autoattack":
        return AutoAttack()
    if part in PARTS:
        return AutoAttack(parts=(part,))
    raise unknown_name("attack", text, EXAMPLES)


def _pgd(
    text: str, rest: list[str], *, verdict: Verdict, alpha: float | None, start: Start, precision: str
) -> Pgd:
    loss = "ce"
    if rest and (rest[0] in LOSS_NAMES or rest[0] == "cw"):
        word = rest.pop(0)
        loss = "margin" if word == "cw" else word
    if len(rest) > 2:
        raise InputError(f"attack {text!r}: write pgd-STEPS or pgd-STEPS-RESTARTS, e.g. pgd-50-10")
    counts = [_count(text, word) for word in rest]
    steps, restarts = (*counts, *(10, 1)[len(counts) :])
    return Pgd(
        steps=steps,
        restarts=restarts,
        alpha=alpha,
        start=start,
        verdict=verdict,
        loss=cast("LossName", loss),
        precision=precision,
    )


def _count(text: str, word: str) -> int:
    if not word.isdecimal():
        raise unknown_name("attack", text, EXAMPLES)
    return int(word)
