"""Tar shards: images with labels beside them (WebDataset), or class folders inside tars, read without unpacking."""

import re
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from freeat.data.readers import Arrays, make_test_split
from freeat.data.readers.folder import TEST_FOLDERS, choose_frame, read_folder, stored_arrays
from freeat.data.readers.pixels import Names, is_image
from freeat.data.readers.store import WORTH_CACHING, LabelledFiles, PixelStore
from freeat.data.readers.trees import LARGEST, PlainFiles
from freeat.data.unpacking import check_name
from freeat.errors import InputError
from freeat.files.reading import check_size, open_file, opened_section, opened_tar, parse_json, refusing

SUFFIX = ".tar"
LABEL_FILES = (".json", ".cls")
"""What holds the label beside an image; the last one counts where there are both."""
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
"""How gzip, bzip2 and xz files begin."""
LABEL_KEYS = ("label", "cls", "class")
"""Where a .json beside an image may hold its label."""
_WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Member:
    """A file inside a shard: where its content begins, and its size."""

    shard: int
    offset: int
    size: int


def shards_of(path: Path) -> list[Path]:
    """The tar files at a path: the file itself, or those of a folder and its subfolders."""
    if path.is_file():
        return [path] if path.suffix == SUFFIX else []
    return sorted(
        file
        for file in (*path.glob(f"*{SUFFIX}"), *path.glob(f"*/*{SUFFIX}"))
        if not file.name.startswith(".")
    )


@dataclass(frozen=True)
class ShardTree:
    """The files inside the tars at a path, by ``shard/member``, or by the member where they lie in class folders."""

    path: Path
    store: PixelStore | None = None

    @cached_property
    def shards(self) -> tuple[Path, ...]:
        return tuple(shards_of(self.path))

    @cached_property
    def _times(self) -> tuple[int, ...]:
        return tuple(shard.stat().st_mtime_ns for shard in self.shards)

    @cached_property
    def _listed(self) -> tuple[dict[tuple[int, str], Member], frozenset[str]]:
        """The files by shard and name, and the folders that tars name."""
        files: dict[tuple[int, str], Member] = {}
        folders: set[str] = set()
        for number, shard in enumerate(self.shards):
            found = self._scanned(shard)
            folders.update(found.folders)
            for name, offset, size in found.files:
                files[number, name] = Member(number, offset, size)
        return files, frozenset(folders)

    def _scanned(self, shard: Path) -> "ShardListing":
        """What a shard holds; kept in the store, if there is one, until the shard changes."""
        if self.store is None:
            return scan(shard)

        def worth(found: ShardListing) -> bool:
            return found.is_text and len(found.files) * len(self.shards) >= WORTH_CACHING

        of_shard = PlainFiles(shard, (shard,))
        return self.store.kept(
            "members", of_shard, [*of_shard.files], lambda: scan(shard), ShardListing, worth
        )

    @cached_property
    def labelled_beside(self) -> bool:
        """Whether labels are files beside the images, as WebDataset has them."""
        names = self._listed[0].keys()
        keys = {(shard, _key(name)) for shard, name in names if is_image(name)}
        return any(name.endswith(LABEL_FILES) and (shard, _key(name)) in keys for shard, name in names)

    @cached_property
    def _top(self) -> str:
        """The one folder that holds all files of class folders, with its slash; empty where there is none."""
        names = [name for _, name in self._listed[0]]
        tops = {name.split("/", 1)[0] for name in names}
        return f"{tops.pop()}/" if len(tops) == 1 and all("/" in name for name in names) else ""

    @cached_property
    def members(self) -> dict[str, Member]:
        """Every file by its name in this tree, sorted."""
        found: dict[str, Member] = {}
        for (shard, inside), member in self._listed[0].items():
            name = (
                f"{self.shard_name(shard)}/{inside}"
                if self.labelled_beside
                else inside.removeprefix(self._top)
            )
            if name in found:
                raise InputError(
                    f"{self.path}: {name} is in two of its tars; give the images different names, or labels beside them"
                )
            found[name] = member
        return dict(sorted(found.items()))

    def shard_name(self, shard: int) -> str:
        """The path of a shard in the data set, without its suffix."""
        file = self.shards[shard]
        return file.stem if self.path.is_file() else file.relative_to(self.path).with_suffix("").as_posix()

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        return {name: (m.size, self._times[m.shard]) for name, m in self.members.items()}

    @cached_property
    def folders(self) -> frozenset[str]:
        named = (name.removeprefix(self._top) for name in self._listed[1] if f"{name}/" != self._top)
        return frozenset(named)

    def read(self, name: str) -> bytes:
        return self.light.read(name)

    @cached_property
    def light(self) -> "ShardReader":
        """The tree without its listing, for worker processes."""
        places = np.array([(m.shard, m.offset, m.size) for m in self.members.values()], np.int64).reshape(
            -1, 3
        )
        return ShardReader(self.path, self.shards, Names(self.members), places)


@dataclass(frozen=True, eq=False)
class ShardReader:
    """The files of shards by name, in a few arrays, which worker processes share."""

    path: Path
    shards: tuple[Path, ...]
    names: Names
    places: NDArray[np.int64]

    @property
    def files(self) -> dict[str, tuple[int, int]]:
        return {name: (int(size), 0) for name, (_, _, size) in zip(self.names, self.places, strict=True)}

    def opened(self, name: str) -> AbstractContextManager[BufferedReader]:
        """The file, of which only what is asked for is read."""
        shard, offset, size = self._place(name)
        return opened_section(self.shards[shard], offset, size)

    def _place(self, name: str) -> tuple[int, int, int]:
        """The shard, the beginning and the size of a file; one that is too large is refused."""
        shard, offset, size = self.places[bisect_left(self.names, name)].tolist()
        check_size(f"{self.shards[shard]}: {name!r}", size, LARGEST)
        return shard, offset, size

    def read(self, name: str) -> bytes:
        shard, offset, size = self._place(name)
        with (
            open_file(self.shards[shard]) as file,
            refusing(self.shards[shard], "tar archive", "write it again"),
        ):
            file.seek(offset)
            return file.read(size)


@dataclass(frozen=True)
class ShardListing:
    """What a tar holds: its files with name, place and size, and the folders that it names."""

    files: list[tuple[str, int, int]]
    folders: list[str]

    @property
    def is_text(self) -> bool:
        """Whether all names are text, so that a document can hold them."""
        return all(name.isprintable() for name in (*self.folders, *(name for name, *_ in self.files)))


def scan(shard: Path) -> ShardListing:
    """The listing of a tar, from the headers of all its members."""
    _check_plain(shard)
    found: dict[str, tuple[int, int]] = {}
    folders: list[str] = []
    with opened_tar(shard) as members:
        for member, _ in members:
            name = member.name.removeprefix("./")
            if member.isdir() and name not in ("", "."):
                folders.append(name)
            if not member.isreg() or member.issparse() or PurePosixPath(name).name.startswith("."):
                continue
            check_name(shard, name)
            found[name] = member.offset_data, member.size
    return ShardListing([(name, *place) for name, place in found.items()], folders)


def _check_plain(shard: Path) -> None:
    with open_file(shard) as file:
        if file.read(6).startswith(COMPRESSED):
            raise InputError(
                f"{shard} is compressed: images are read from the middle of a tar, so store it as a plain one"
            )


def _key(name: str) -> str:
    """What the files of one example share: the name up to the first dot of its last part."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"


def read_shards(
    tree: ShardTree,
    store: PixelStore,
    *,
    seed: int,
    test_fraction: float,
    image_size: int | None,
    skip_unreadable: bool = False,
) -> Arrays:
    """Both splits of tar shards; where there is no test split a stratified one is made and noted."""
    if not tree.labelled_beside:
        return read_folder(
            tree,
            store,
            seed=seed,
            test_fraction=test_fraction,
            image_size=image_size,
            skip_unreadable=skip_unreadable,
        )
    images = [name for name in tree.files if is_image(name)]
    skipped = store.unreadable(tree, images) if skip_unreadable else {}
    readable = [name for name in images if name not in skipped]
    labels = store.kept("labels", tree, readable, lambda: _labels(tree, readable), dict[str, int | str])
    splits, classes, notes = _splits(tree, labels, seed=seed, test_fraction=test_fraction)
    frame, resized = choose_frame(tree, list(labels), image_size, store)
    if skipped:
        resized = (
            *resized,
            f"{tree.path.name}: {len(skipped)} of {len(images)} images cannot be read and were left out.",
        )
    return stored_arrays(store.read(tree, splits, frame), splits, classes, (*notes, *resized))


def _labels(tree: ShardTree, images: Iterable[str]) -> dict[str, int | str]:
    """The label of every image: what the .cls or .json beside it says."""
    beside: dict[str, str] = {}
    for suffix in LABEL_FILES:
        beside |= {_key(name): name for name in tree.files if name.endswith(suffix)}
    found: dict[str, int | str] = {}
    for image in images:
        name = beside.get(_key(image))
        if name is None:
            raise InputError(
                f"{tree.path}: {image} has no label; store {_key(image)}.cls or {_key(image)}.json beside it"
            )
        found[image] = _label(tree, name)
    return found


def _label(tree: ShardTree, name: str) -> int | str:
    where = f"{tree.path}: {name}"
    if name.endswith(".json"):
        document = parse_json(tree.read(name), where)
        keys = [key for key in LABEL_KEYS if isinstance(document, dict) and key in document]
        value = document[keys[0]] if keys else None
    else:
        with refusing(where, "text with a label"):
            value = tree.read(name).decode().strip()
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 9:
        return int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str)
        or (isinstance(value, str) and not value.isprintable())
    ):
        raise InputError(
            f"{where} holds no label: write a class number or name, in a .json as {', '.join(map(repr, LABEL_KEYS))}"
        )
    label: int | str = value
    return label


def _splits(
    tree: ShardTree, labels: dict[str, int | str], *, seed: int, test_fraction: float
) -> tuple[dict[str, LabelledFiles], tuple[str, ...], tuple[str, ...]]:
    """The splits by the words in the names of the shards, the classes, and notes."""
    named: dict[str, list[str]] = {}
    split_of = [_split_word(tree.shard_name(shard)) for shard in range(len(tree.shards))]
    for name in labels:
        named.setdefault(split_of[tree.members[name].shard], []).append(name)
    test = next((word for word in TEST_FOLDERS if word in named), None)
    train = named.get("train", [])
    if not train:
        raise InputError(f"{tree.path} has no training split: name its shards train-….tar and test-….tar")
    classes, number = _classes(tree, {name: labels[name] for name in train})
    notes: tuple[str, ...] = ()
    files = {"train": train} | ({"test": named[test]} if test else {})
    if test is None:
        y = np.array([number[labels[name]] for name in train], np.int64)
        held_out, notes = make_test_split(tree.path, y, test_fraction, seed, classes)
        files = {
            "train": [name for name, out in zip(train, held_out, strict=True) if not out],
            "test": [name for name, out in zip(train, held_out, strict=True) if out],
        }
    for name in files["test"]:
        if labels[name] not in number:
            raise InputError(
                f"{tree.path}: class {labels[name]!r} of {name} has no training images; add some or remove it"
            )
    splits = {
        split: LabelledFiles(names=names, y=np.array([number[labels[name]] for name in names], np.int64))
        for split, names in files.items()
    }
    return splits, classes, notes


def _split_word(shard: str) -> str:
    words = _WORDS.findall(shard.lower())
    return next((word for word in words if word == "train" or word in TEST_FOLDERS), "train")


def _classes(tree: ShardTree, labels: dict[str, int | str]) -> tuple[tuple[str, ...], dict[int | str, int]]:
    """The names of the classes and the number of each label: numbers are kept, names are sorted."""
    kinds = {type(label) for label in labels.values()}
    if len(kinds) > 1:
        raise InputError(f"{tree.path}: some labels are numbers and some are names; use one kind")
    found = set(labels.values())
    if kinds == {str}:
        names = sorted(str(label) for label in found)
        return tuple(names), {name: i for i, name in enumerate(names)}
    numbers = [int(label) for label in found]
    if min(numbers) < 0 or max(numbers) >= 100_000:
        raise InputError(
            f"{tree.path}: labels from {min(numbers)} to {max(numbers)}; class numbers begin at 0"
        )
    return tuple(str(i) for i in range(max(numbers) + 1)), {i: i for i in range(max(numbers) + 1)}
