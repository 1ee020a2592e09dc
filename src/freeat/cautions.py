"""Settings that are allowed but seldom meant: said once when a run begins, and beside its result."""

from collections.abc import Iterable

CROSSING = 2.0
"""A step of this many radii leads from anywhere in a ball to its boundary or beyond."""


def cautions(
    *, batch_size: int, n: int, steps: Iterable[tuple[str, float | None, float]] = ()
) -> tuple[str, ...]:
    """Sentences about a batch larger than the sample, and about attack steps (what, α or None, ε) of wrong scale."""
    said = []
    if batch_size > n:
        said.append(f"batch size {batch_size} exceeds the {n} training images: every batch is the whole set.")
    said += [
        f"the {what} α = {alpha:.4g} is more than twice its radius ε = {eps:.4g}: every step crosses the whole ball "
        "and ends on its boundary."
        for what, alpha, eps in steps
        if alpha is not None and alpha > CROSSING * eps
    ]
    return tuple(said)
