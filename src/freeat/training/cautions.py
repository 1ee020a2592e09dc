"""Settings that are allowed but seldom meant: said once when a run begins, and beside its result."""

from collections.abc import Iterable, Mapping

CROSSING = 2.0
"""A step of this many radii leads from anywhere in a ball to its boundary or beyond."""


def cautions(
    *,
    batch_size: int,
    n: int,
    steps: Iterable[tuple[str, float | None, float]] = (),
    unused: Mapping[str, object] | None = None,
) -> tuple[str, ...]:
    """Sentences about a batch larger than the sample, attack steps (what, α or None, ε) of wrong scale, and ERM.

    ``unused`` are settings of a training attack that were given to ERM.
    """
    said = []
    if batch_size > n:
        said.append(f"batch size {batch_size} exceeds the {n} training images: every batch is the whole set.")
    said += [
        f"the {what} α = {alpha:.4g} is more than twice its radius ε = {eps:.4g}: every step crosses the whole ball "
        "and ends on its boundary."
        for what, alpha, eps in steps
        if alpha is not None and alpha > CROSSING * eps
    ]
    if unused:
        given = ", ".join(f"{name} = {value}" for name, value in unused.items())
        said.append(f"erm trains without an adversary and makes no use of {given}.")
    return tuple(said)
