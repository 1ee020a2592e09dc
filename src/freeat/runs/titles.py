"""What models are called that were given no name: the end of their path, as long as it takes to tell them apart."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from freeat.runs.references import Reference


@dataclass(frozen=True)
class _Place:
    """Where a model's weights lie: the parts of a path, and which of the weights there."""

    parts: tuple[str, ...]
    weights: str = ""

    def end(self, length: int) -> str:
        return "/".join(self.parts[-length:]) + self.weights


def titles(references: Sequence[str], *, taken: Collection[str] = ()) -> list[str]:
    """A name for every reference: ``seed-0``, or ``free-4/seed-0`` where others end in ``seed-0`` too.

    References to the same weights have the same name, and none has one of those already ``taken``. What no part of a
    path tells apart keeps its last one.
    """
    places = [_place(reference) for reference in references]
    return [_title(place, {*places} - {place}, taken) for place in places]


def _title(place: _Place, others: Collection[_Place], taken: Collection[str]) -> str:
    for length in range(1, len(place.parts) + 1):
        title = place.end(length)
        if title not in taken and all(title != other.end(length) for other in others):
            return title
    return place.end(1)


def _place(reference: str) -> _Place:
    asked = Reference.of(reference)
    if asked.folder is not None:
        return _Place(_parts(asked.folder.path.resolve()), f"@{asked.weights}" if asked.weights else "")
    file = Path(asked.weights).absolute()
    return _Place(_parts(file.parent / file.stem))


def _parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(path.anchor).parts
