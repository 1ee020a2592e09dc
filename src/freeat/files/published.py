"""The folder of the data sets, and which of them lie in it: found without reading an image, so without torch."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freeat.errors import InputError

VARIABLE = "FREEAT_DATA"

State = Literal["embedded", "published", "substitute", "absent", "damaged"]


def data_folder(data_dir: Path | str | None = None) -> Path:
    """The given folder, else ``$FREEAT_DATA``, else ``freeat/data`` in the user's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    return _user_cache() / "freeat" / "data"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def substitute_path(name: str, folder: Path) -> Path:
    """Where a user puts a file that replaces the data set of this name while it is not there."""
    return folder / f"{name}.npz"


@dataclass(frozen=True, kw_only=True)
class KnownDataSet:
    """A data set by name: its state, and the sizes of the files found here, else the published sizes."""

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
        return self.state in ("embedded", "published", "substitute")


@dataclass(frozen=True, kw_only=True)
class PublishedDataSet:
    """What is known of a data set before its files are looked for.

    ``paths`` are the places of its files in the data folder; a data set that comes with the library has none.
    """

    name: str
    title: str
    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    n_classes: int
    licence: str
    paths: tuple[str, ...]

    def in_folder(self, folder: Path) -> KnownDataSet:
        """The data set as it is found in the data folder."""
        state, path, (n_train, n_test) = self._found(folder)
        return KnownDataSet(
            name=self.name,
            title=self.title,
            state=state,
            path=path,
            n_train=n_train,
            n_test=n_test,
            shape=self.shape,
            n_classes=self.n_classes,
            licence=self.licence,
        )

    def _found(self, folder: Path) -> tuple[State, Path | None, tuple[int, int]]:
        published = self.n_train, self.n_test
        if not self.paths:
            return "embedded", None, published
        for path in self.paths:
            if (folder / path).exists():
                return "published", folder / path, published
        substitute = substitute_path(self.name, folder)
        if not substitute.is_file():
            return "absent", None, published
        try:
            return "substitute", substitute, _sizes(substitute)
        except InputError:
            return "damaged", substitute, published


def _sizes(path: Path) -> tuple[int, int]:
    """The numbers of training and test images of an .npz file."""
    from freeat.files.npz import read_npz_arrays

    labels = read_npz_arrays(path, ("y_train", "y_test"))
    if len(labels) < 2:
        raise InputError(f"{path}: no labels of both splits (y_train, y_test); write it again with both")
    return labels["y_train"].size, labels["y_test"].size
