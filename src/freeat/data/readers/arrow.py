"""Tables of images: parquet and arrow files, and folders saved by the datasets library."""

import hashlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from freeat.data.images import Images, pixels_digest
from freeat.data.readers import Array, Arrays, make_test_split
from freeat.data.readers.arrays import to_nhwc
from freeat.data.readers.folder import TEST_FOLDERS, choose_frame, stored_arrays
from freeat.data.readers.store import LabelledFiles, PixelStore, labels_digest
from freeat.data.readers.trees import PlainFiles
from freeat.errors import InputError, need
from freeat.files.documents import decoded, identity_of, remove_abandoned, space_for, temporary_name
from freeat.files.locks import locked
from freeat.files.reading import check_expansion, check_regular, parse_json, refusing

IMAGE_NAMES = ("image", "img", "images", "pixels", "pixel_values", "x")
MOST_ROWS = 10_000_000
ROWS_AT_ONCE = 256
"""Rows of a parquet file that are in memory while it is unpacked."""
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target", "y")


@dataclass(frozen=True, eq=False)
class TableColumns:
    """One split: its column of images and its column of labels."""

    where: str
    images: Any
    column: Any
    names: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, files: Sequence[Path], unpacked: PixelStore | None) -> "TableColumns":
        """The columns of these files, found by what their features say, else by their names.

        With a store, parquet files are unpacked to it and stay out of memory.
        """
        arrow = need("pyarrow", extra="datasets", what=f"the data set {path.name}")
        try:
            table = arrow.concat_tables([_read(file, unpacked) for file in files])
        except arrow.ArrowInvalid as error:
            raise InputError(
                f"{path}: its files have different columns ({error}); write them with one schema"
            ) from None
        features = _features(table.schema.metadata or {}, path)
        image = _chosen(path, table.column_names, features, "Image", IMAGE_NAMES, "images")
        label = _chosen(path, table.column_names, features, "ClassLabel", LABEL_NAMES, "labels")
        feature = features.get(label)
        names = feature.get("names") if isinstance(feature, dict) else None
        if names is not None and not (
            isinstance(names, list) and all(isinstance(name, str) for name in names)
        ):
            raise InputError(f"{path}: the class names of its 'huggingface' metadata are no list of texts")
        return cls(str(path), table.column(image), table.column(label), tuple(names or ()))

    @property
    def encoded(self) -> bool:
        """Whether the images are encoded files rather than arrays."""
        kind = str(self.images.type)
        return kind.startswith("struct<bytes: ") or kind in ("binary", "large_binary")

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The names of the classes where labels are texts; none where they are numbers."""
        kind = str(self.column.type)
        if "string" not in kind.partition("<")[0] and not kind.startswith("dictionary"):
            return ()
        labels = set(self.column.drop_null().to_pylist())
        return tuple(sorted(labels)) if all(isinstance(label, str) for label in labels) else ()

    def labels(self, names: tuple[str, ...]) -> Array:
        """The numbers of the classes."""
        if missing := self.column.null_count:
            raise InputError(f"{self.where}: {missing} images have no label; remove or label them")
        labels = self.column.to_pylist()
        if not self.texts:
            if not all(isinstance(label, int) and not isinstance(label, bool) for label in labels):
                raise InputError(
                    f"{self.where}: labels of type {self.column.type} are neither whole numbers nor texts"
                )
            return np.array(labels)
        number = {name: i for i, name in enumerate(names)}
        for label in self.texts:
            if label not in number:
                raise InputError(
                    f"{self.where}: class {label!r} has no training images; add some or remove it"
                )
        return np.array([number[label] for label in labels], np.int64)


@dataclass(frozen=True, eq=False)
class ColumnPixels:
    """Images stored as arrays in a column, of which the rows that are asked for are read."""

    column: Any
    what: str
    workers: int = 0
    digest: str | None = None
    device: ClassVar[torch.device] = torch.device("cpu")

    @cached_property
    def _first(self) -> Array:
        return self._read(self.column.slice(0, 1))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self._first.shape[1:]

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if self._first.dtype == np.uint8 else torch.float32

    @property
    def nbytes(self) -> int:
        """The bytes of all pixels."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, rows: Tensor) -> Tensor:
        out = np.empty((len(rows), *self.shape[1:]), self._first.dtype)
        for place, row in enumerate(rows.tolist()):
            out[place] = self._read(self.column[row].values, of_one=True)
        return torch.from_numpy(out)

    def blocks(self) -> Iterator[Array]:
        """All images in turn, some at a time; of one shape and type, with pixels that are ones."""
        for first in range(0, len(self), ROWS_AT_ONCE):
            block = self._read(self.column.slice(first, ROWS_AT_ONCE))
            if block.shape[1:] != self.shape[1:]:
                raise InputError(f"{self.what}: {SEVERAL_SHAPES}")
            yield block

    @cached_property
    def in_memory(self) -> Array:
        """All images as one array."""
        out = np.empty(self.shape, self._first.dtype)
        first = 0
        for block in self.blocks():
            out[first : first + len(block)] = block
            first += len(block)
        return out

    def digests(self, rows: dict[str, Array], y: dict[str, Array]) -> dict[str, str]:
        """The digests of the splits that have these rows of the images, ascending; refuses what is no pixel."""
        n, *sides, channels = self.shape
        made = {split: pixels_digest((len(own), channels, *sides), self.dtype) for split, own in rows.items()}
        masks = {split: np.zeros(n, bool) for split in rows}
        for split, own in rows.items():
            masks[split][own] = True
        first = 0
        for block in self.blocks():
            try:
                Images.of(torch.from_numpy(block.copy()).permute(0, 3, 1, 2), torch.zeros(len(block)).long())
            except InputError as error:
                raise InputError(f"{self.what}, rows from {first}: {error}") from None
            for split, mask in masks.items():
                made[split].update(np.ascontiguousarray(block[mask[first : first + len(block)]]).data)
            first += len(block)
        for split, labels in y.items():
            made[split].update(labels.astype(np.int64).tobytes())
        return {split: digest.hexdigest() for split, digest in made.items()}

    def _read(self, values: Any, *, of_one: bool = False) -> Array:
        """Images as one array, channels last: a column of them, or the values of one."""
        x = _dense(values, self.what)
        x = x[None] if of_one else x
        if x.size == 0:
            raise InputError(f"{self.what}: images without pixels; store images of at least 1×1")
        if x.dtype.kind in "ui":
            if x.min() < 0 or x.max() > 255:
                raise InputError(
                    f"{self.what}: pixels from {x.min()} to {x.max()}; whole numbers must lie in 0 to 255"
                )
            x = x.astype(np.uint8, copy=False)
        else:
            x = x.astype(np.float32, copy=False)
        return to_nhwc(x, None, self.what)


SEVERAL_SHAPES = "arrays of several shapes; store images of one shape"


def _dense(values: Any, what: str) -> Array:
    """Nested lists as one array."""
    compute = need("pyarrow.compute", extra="datasets", what=what)
    shape, kind = [len(values)], values.type
    while "list" in str(values.type).partition("<")[0]:
        lengths = compute.unique(compute.list_value_length(values)).to_pylist()
        if len(lengths) != 1 or lengths[0] is None:
            raise InputError(f"{what}: {SEVERAL_SHAPES}")
        shape.append(lengths[0])
        values = compute.list_flatten(values)
    with refusing(what, "array of pixels"):
        x = np.asarray(values)
    if x.dtype.kind not in "uif" or values.null_count:
        raise InputError(f"{what}: the images are {kind}, neither encoded images nor arrays of numbers")
    return x.reshape(shape)


@contextmanager
def _refusing(file: Path) -> Iterator[None]:
    check_regular(file)
    with refusing(file, f"{file.suffix} file", "write it again"):
        yield


def _claimed(file: Path) -> int:
    """The bytes that a file takes in memory once it is read; none of an arrow file, which is only mapped."""
    parquet = need("pyarrow.parquet", extra="datasets", what=str(file))
    if file.suffix != ".parquet":
        return 0
    with _refusing(file), parquet.ParquetFile(file) as opened:
        return _check_claims(file, opened.metadata)


def _read(file: Path, unpacked: PixelStore | None) -> Any:
    """The table of a file."""
    arrow = need("pyarrow", extra="datasets", what=str(file))
    parquet = need("pyarrow.parquet", extra="datasets", what=str(file))
    with _refusing(file):
        if file.suffix == ".parquet":
            with parquet.ParquetFile(file) as opened:
                table = (
                    opened.read() if unpacked is None else _mapped(_unpacked(file, opened, unpacked), arrow)
                )
        else:
            table = _mapped(file, arrow)
        _check_rows(file, table.num_rows)
        table.validate(full=True)  # the offsets of a damaged file may point anywhere
        return table


def _mapped(file: Path, arrow: Any) -> Any:
    source = arrow.memory_map(str(file))
    try:
        return arrow.ipc.open_stream(source).read_all()
    except arrow.ArrowInvalid:
        return arrow.ipc.open_file(source).read_all()


def _unpacked(file: Path, opened: Any, store: PixelStore) -> Path:
    """A parquet file as an arrow file in the store, written once: its rows can be read one by one."""
    arrow = need("pyarrow", extra="datasets", what=str(file))
    status = file.stat()
    source = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]
    listing = identity_of({"size": status.st_size, "changed": status.st_mtime_ns})
    path = store.folder / f"{source}-{listing}{ARROW}"
    store.folder.mkdir(parents=True, exist_ok=True)
    remove_abandoned(store.folder)
    with locked(path):
        if not path.is_file():
            temporary = temporary_name(path)
            try:
                with space_for(path), arrow.ipc.new_file(str(temporary), opened.schema_arrow) as out:
                    for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE):
                        out.write_batch(batch)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            for other in store.folder.glob(f"{source}-*{ARROW}"):
                if other != path:
                    other.unlink(missing_ok=True)
    return path


def _check_claims(file: Path, metadata: Any) -> int:
    """The bytes of a table; one that expands beyond all measure is refused.

    A few bytes can stand for a thousand million equal values.
    """
    _check_rows(file, metadata.num_rows)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(max(column.num_values, column.total_uncompressed_size) for column in columns)
    check_expansion(file, size, file.stat().st_size)
    return int(size)


def _check_rows(file: Path, rows: int) -> None:
    """Refuse a table without rows, or with more than are ever read."""
    if not 1 <= rows <= MOST_ROWS:
        raise InputError(f"{file} has {rows} rows: a table of images has at least 1 and at most {MOST_ROWS}")


@dataclass(frozen=True)
class _Info:
    features: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _HuggingFace:
    info: _Info = field(default_factory=_Info)


def _features(metadata: dict[bytes, bytes], where: Path) -> dict[str, Any]:
    """The features of the columns, as 🤗 wrote them; none where its metadata are not of that form."""
    try:
        found = parse_json(metadata.get(b"huggingface", b"{}"), where)
        return decoded(found, _HuggingFace, where).info.features
    except InputError as error:
        raise InputError(f"{error}; its 'huggingface' metadata are broken: write the file again") from None


def _chosen(
    path: Path, columns: list[str], features: dict[str, Any], kind: str, usual: tuple[str, ...], what: str
) -> str:
    """The column of images or labels: the only one with that feature, else one with a usual name."""
    declared = [
        name
        for name in columns
        if isinstance(features.get(name), dict) and features[name].get("_type") == kind
    ]
    if len(declared) == 1:
        return declared[0]
    for name in usual:
        if name in (declared or columns):
            return name
    raise InputError(
        f"{path}: no column of {what} among {', '.join(columns)}: call it {usual[0]!r}"
        + (" (several could be it)" if declared else "")
    )


ARROW = ".arrow"
SUFFIXES = (".parquet", ARROW)
_WORDS = re.compile(r"[a-z]+")


def is_arrow(path: Path) -> bool:
    """Whether a 🤗 data set lies at this path."""
    return path.suffix in SUFFIXES if path.is_file() else bool(_files(path))


def read_arrow(
    path: Path, store: PixelStore, *, seed: int, test_fraction: float, image_size: int | None
) -> Arrays:
    """Both splits; where there is no test split a stratified one is made and noted."""
    found = _splits(path)
    # All files together: published data sets are many files of a few hundred megabytes.
    large = sum(_claimed(file) for files in found.values() for file in files) > store.limit
    unpacked = store if large else None
    splits = {split: TableColumns.read(path, files, unpacked) for split, files in found.items()}
    names = splits["train"].names or splits["train"].texts
    labels = {split: table.labels(names) for split, table in splits.items()}
    encoded = all(table.encoded for table in splits.values())
    if not encoded and image_size is not None:
        raise InputError(
            f"image size {image_size} for {path.name}: its images are arrays of one size; leave it out"
        )
    rows = {split: np.arange(len(y)) for split, y in labels.items()}
    origin = {split: split for split in rows}
    made: tuple[str, ...] = ()
    if "test" not in splits:
        held_out, made = make_test_split(path, labels["train"], test_fraction, seed, names)
        rows = {"train": np.flatnonzero(~held_out), "test": np.flatnonzero(held_out)}
        origin = {"train": "train", "test": "train"}
    y = {split: labels[origin[split]][chosen] for split, chosen in rows.items()}
    if encoded:
        tree = EncodedImages(path, {split: table.images for split, table in splits.items()})
        files = {
            split: LabelledFiles(names=[f"{origin[split]}/{i}" for i in chosen.tolist()], y=y[split])
            for split, chosen in rows.items()
        }
        names_of_all = [name for part in files.values() for name in part.names]
        frame, notes = choose_frame(tree, names_of_all, image_size, store)
        return stored_arrays(store.read(tree, files, frame), files, names, (*made, *notes))
    pixels = {
        split: ColumnPixels(table.images, f"{path}: {split}", store.processes)
        for split, table in splits.items()
    }
    large = sum(column.nbytes for column in pixels.values()) > store.limit
    digests: dict[str, str | None] = {}
    if large:
        digests = _digests(path, store, pixels, origin, rows, y)
        for source, column in pixels.items():
            of_rows = {
                split: [digests[split], labels_digest(rows[split])]
                for split in rows
                if origin[split] == source
            }
            pixels[source] = replace(column, digest=identity_of(of_rows))
    x = {split: column if large else column.in_memory for split, column in pixels.items()}
    return Arrays(
        x_train=x[origin["train"]],
        y_train=y["train"],
        x_test=x[origin["test"]],
        y_test=y["test"],
        classes=names,
        notes=made,
        digests=digests,
        rows=rows if made else {},
    )


def _digests(
    path: Path,
    store: PixelStore,
    pixels: dict[str, ColumnPixels],
    origin: dict[str, str],
    rows: dict[str, Array],
    y: dict[str, Array],
) -> dict[str, str | None]:
    """The digests of the splits of images that are not in memory: read once, and kept as long as the files stay."""

    def found() -> dict[str, str]:
        digests: dict[str, str] = {}
        for source, column in pixels.items():
            own = [split for split in rows if origin[split] == source]
            digests |= column.digests(
                {split: rows[split] for split in own}, {split: y[split] for split in own}
            )
        return digests

    splits = {split: [labels_digest(y[split]), labels_digest(rows[split])] for split in rows}
    tree = PlainFiles(path, (path,) if path.is_file() else tuple(_files(path)))
    kind = f"arrays-{identity_of(splits)[:8]}"
    return dict(store.kept(kind, tree, [*tree.files], found, dict[str, str], lambda _: True))


def _files(path: Path) -> list[Path]:
    """The data files of a folder or of its subfolders, of the first kind there is."""
    for suffix in SUFFIXES:
        found = sorted((*path.glob(f"*{suffix}"), *path.glob(f"*/*{suffix}")))
        if found := [file for file in found if not file.name.startswith("cache-")]:  # what `map` left there
            return found
    return []


def _splits(path: Path) -> dict[str, list[Path]]:
    """The files of each split, by the words in their names or in those of their folders."""
    if path.is_file():
        return {"train": [path]}
    found: dict[str, list[Path]] = {}
    for file in _files(path):
        words = _WORDS.findall(file.relative_to(path).as_posix().lower())
        split = next((word for word in words if word == "train" or word in TEST_FOLDERS), "train")
        found.setdefault(split, []).append(file)
    test = next((found[name] for name in TEST_FOLDERS if name in found), None)
    if "train" not in found:
        raise InputError(f"{path} has no training split: name its files train-….parquet and test-….parquet")
    return {"train": found["train"]} | ({"test": test} if test else {})


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Encoded images in columns, as a tree of files: ``train/0``, ``train/1``, …"""

    path: Path
    columns: dict[str, Any]

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        """Name to (size, time of change of the data set)."""
        compute = need("pyarrow.compute", extra="datasets", what=str(self.path))
        sources = [self.path] if self.path.is_file() else _files(self.path)
        changed = max(file.stat().st_mtime_ns for file in sources)
        found: dict[str, tuple[int, int]] = {}
        for split, column in self.columns.items():
            content = compute.struct_field(column, "bytes") if "struct" in str(column.type) else column
            sizes = compute.binary_length(content).to_pylist()
            found |= {f"{split}/{i}": (size or 0, changed) for i, size in enumerate(sizes)}
        return found

    def read(self, name: str) -> bytes:
        split, _, row = name.partition("/")
        stored = self.columns[split][int(row)].as_py()
        value = stored.get("bytes") if isinstance(stored, dict) else stored
        if not isinstance(value, bytes):
            known = (
                f"only the path {stored['path']!r}"
                if isinstance(stored, dict) and stored.get("path")
                else "nothing"
            )
            raise InputError(
                f"{self.path}: image {name} holds {known}, no image: save the data set with its images embedded"
            )
        return value
