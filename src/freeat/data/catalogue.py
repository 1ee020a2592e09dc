"""What data sets there are, and which of them are on this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freeat.data.location import data_folder
from freeat.data.published import find_form, stand_in_path
from freeat.data.readers.npz import npz_sizes
from freeat.data.source import Source
from freeat.data.sources import SOURCES
from freeat.errors import InputError

State = Literal["embedded", "published", "stand-in", "absent", "damaged"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A data set by name: its sizes as it lies here, else as it was published."""

    name: str
    title: str
    state: State
    path: Path | None
    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    n_classes: int
    licence: str

    @property
    def present(self) -> bool:
        """Whether it can be loaded without fetching it."""
        return self.state in ("embedded", "published", "stand-in")


def available(data_dir: Path | str | None = None) -> list[Entry]:
    """Every data set known by name. Files are found, not verified: loading does that."""
    folder = data_folder(data_dir)
    return [_entry(source, folder) for source in SOURCES.values()]


def _entry(source: Source, folder: Path) -> Entry:
    state, path, (n_train, n_test) = _found(source, folder)
    return Entry(
        name=source.name,
        title=source.title,
        state=state,
        path=path,
        n_train=n_train,
        n_test=n_test,
        shape=source.shape,
        n_classes=source.n_classes,
        licence=source.licence,
    )


def _found(source: Source, folder: Path) -> tuple[State, Path | None, tuple[int, int]]:
    published = source.n_train, source.n_test
    if not source.downloads:
        return "embedded", None, published
    if (form := find_form(source, folder)) is not None:
        return "published", folder / form.path, published
    stand_in = stand_in_path(source, folder)
    if not stand_in.is_file():
        return "absent", None, published
    try:
        return "stand-in", stand_in, npz_sizes(stand_in)
    except InputError:
        return "damaged", stand_in, published
