"""What is known of a published data set: its forms, its files and their checksums."""

from dataclasses import dataclass

from freeat.data.augmentation import CropFlip


@dataclass(frozen=True, kw_only=True)
class Download:
    """A published file: its official address, and where it lies in the data folder."""

    url: str
    path: str
    md5: str


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form in which a data set can lie in the data folder.

    ``path`` is a folder or an archive in the data folder; ``reader`` the name of the format; ``mark`` the file
    by which a folder is told; ``md5`` the checksums: of the archive itself (under an empty name), or of the
    unpacked content of each file of the folder, where they are known.
    """

    path: str
    reader: str
    mark: str = ""
    md5: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A published data set."""

    name: str
    title: str
    shape: tuple[int, int, int]
    n_classes: int
    n_train: int
    n_test: int
    licence: str
    forms: tuple[Form, ...] = ()
    downloads: tuple[Download, ...] = ()
    classes: tuple[str, ...] = ()
    augment: CropFlip | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes; their numbers where the names are known to the files only."""
        return self.classes or tuple(str(c) for c in range(self.n_classes))
