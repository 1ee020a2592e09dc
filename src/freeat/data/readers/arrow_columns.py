"""The columns of a 🤗 data set: which one holds the images, which one the labels, and what is in them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from freeat.data.readers.arrays import Array
from freeat.data.readers.npz import to_nhwc
from freeat.errors import InputError, need

IMAGE_NAMES = ("image", "img", "images", "pixels", "pixel_values", "x")
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target", "y")


@dataclass(frozen=True, eq=False)
class Columns:
    """One split: its column of images and its column of labels."""

    where: str
    images: Any
    column: Any
    names: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, files: Sequence[Path]) -> "Columns":
        """The columns of these files, found by what their features say, else by their names."""
        arrow = need("pyarrow", extra="datasets", what=f"the data set {path.name}")
        try:
            table = arrow.concat_tables([_read(file) for file in files])
        except arrow.ArrowInvalid as error:
            raise InputError(
                f"{path}: its files have different columns ({error}); write them with one schema"
            ) from None
        features = _features(table.schema.metadata or {})
        image = _chosen(path, table.column_names, features, "Image", IMAGE_NAMES, "images")
        label = _chosen(path, table.column_names, features, "ClassLabel", LABEL_NAMES, "labels")
        names = tuple(str(name) for name in features.get(label, {}).get("names", ()))
        return cls(str(path), table.column(image), table.column(label), names)

    @property
    def encoded(self) -> bool:
        """Whether the images are pictures in bytes rather than arrays."""
        kind = str(self.images.type)
        return kind.startswith("struct<bytes: ") or kind in ("binary", "large_binary")

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The names of the classes where labels are texts; none where they are numbers."""
        labels = set(self.column.drop_null().to_pylist())
        return tuple(sorted(labels)) if all(isinstance(label, str) for label in labels) else ()

    def labels(self, names: tuple[str, ...]) -> Array:
        """The numbers of the classes."""
        if missing := self.column.null_count:
            raise InputError(f"{self.where}: {missing} images have no label; remove or label them")
        labels = self.column.to_pylist()
        if not self.texts:
            return np.array(labels)
        number = {name: i for i, name in enumerate(names)}
        for label in self.texts:
            if label not in number:
                raise InputError(
                    f"{self.where}: class {label!r} has no training images; add some or remove it"
                )
        return np.array([number[label] for label in labels], np.int64)

    def pixels(self, what: str) -> Array:
        """Images stored as arrays, channels last."""
        x = self._dense(what)
        if x.dtype.kind in "ui":
            if x.min() < 0 or x.max() > 255:
                raise InputError(
                    f"{what}: pixels from {x.min()} to {x.max()}; whole numbers must lie in 0 to 255"
                )
            x = x.astype(np.uint8, copy=False)
        return to_nhwc(x, None, what)

    def _dense(self, what: str) -> Array:
        """Nested lists as one array."""
        compute = need("pyarrow.compute", extra="datasets", what=what)
        values, shape = self.images, [len(self.images)]
        while "list" in str(values.type).partition("<")[0]:
            lengths = compute.unique(compute.list_value_length(values)).to_pylist()
            if len(lengths) != 1 or lengths[0] is None:
                raise InputError(f"{what}: arrays of several shapes; store images of one shape")
            shape.append(lengths[0])
            values = compute.list_flatten(values)
        x = np.asarray(values)
        if x.dtype.kind not in "uif" or values.null_count:
            raise InputError(
                f"{what}: the images are {self.images.type}, neither pictures nor arrays of numbers"
            )
        return x.reshape(shape)


def _read(file: Path) -> Any:
    arrow = need("pyarrow", extra="datasets", what=str(file))
    parquet = need("pyarrow.parquet", extra="datasets", what=str(file))
    try:
        if file.suffix == ".parquet":
            return parquet.read_table(file)
        source = arrow.memory_map(str(file))
        try:
            return arrow.ipc.open_stream(source).read_all()
        except arrow.ArrowInvalid:
            return arrow.ipc.open_file(source).read_all()
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{file}: not a readable {file.suffix} file ({error}); write it again") from None


def _features(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """What 🤗 wrote of its columns."""
    info = json.loads(metadata.get(b"huggingface", b"{}")).get("info") or {}
    features: dict[str, Any] = info.get("features") or {}
    return features


def _chosen(
    path: Path, columns: list[str], features: dict[str, Any], kind: str, usual: tuple[str, ...], what: str
) -> str:
    """The column of images or labels: the one its features tell, and where several do or none, by its name."""
    told = [
        name
        for name in columns
        if isinstance(features.get(name), dict) and features[name].get("_type") == kind
    ]
    if len(told) == 1:
        return told[0]
    for name in usual:
        if name in (told or columns):
            return name
    raise InputError(
        f"{path}: no column of {what} among {', '.join(columns)}: call it {usual[0]!r}"
        + (" (several could be it)" if told else "")
    )
