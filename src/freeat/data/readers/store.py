"""Decoded images: in memory, in a cache that the processes of a machine share, or decoded for every batch."""

import hashlib
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from freeat.data.images import Pixels, pixels_digest
from freeat.data.prefetch import default_workers, prefetched
from freeat.data.readers import MEMORY_LIMIT, Array
from freeat.data.readers.pixels import (
    CachedPixels,
    FilePixels,
    Frame,
    Header,
    Names,
    find_unreadable,
    read_header,
)
from freeat.data.readers.trees import Tree, file_digest, light, listing_digest
from freeat.errors import InputError
from freeat.files.documents import (
    NoSpace,
    atomic_folder,
    identity_of,
    read_document,
    space_for,
    write_document,
)
from freeat.files.locks import locked

log = logging.getLogger(__name__)

T = TypeVar("T")

WORTH_CACHING = 512
"""Images from which on a cache pays: fewer are decoded in less time than processes take to start."""
AT_ONCE = 64
"""Images that a worker process decodes at a time."""
SPARE = 1.05
"""The free space that a cache must find, as a multiple of its size."""


@dataclass(frozen=True, kw_only=True)
class LabelledFiles:
    """The files of a split with their labels."""

    names: Sequence[str]
    y: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredSplit:
    """The pixels of a split (n, H, W, C), and its digest where that is known already."""

    x: Array | Pixels
    digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class CacheFacts:
    """What a cache was made of, and the digests of its splits by those of their labels."""

    source: str
    shape: tuple[int, int, int]
    listing: str
    digests: dict[str, tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class PixelStore:
    """Where decoded images are kept.

    Args:
        folder: The folder of the caches.
        limit: The bytes of pixels up to which a data set is held in memory.
        stream: Keep nothing: decode the images of each batch from their files.
        workers: The processes that decode images, or read decoded ones ahead from a cache; by default half of the
            cores.
    """

    folder: Path
    limit: int = MEMORY_LIMIT
    stream: bool = False
    workers: int | None = None

    def read(self, tree: Tree, splits: dict[str, LabelledFiles], frame: Frame) -> dict[str, StoredSplit]:
        """The pixels of every split."""
        if self.stream:
            return {split: self._streamed(tree, files, frame) for split, files in splits.items()}
        count = sum(len(files.names) for files in splits.values())
        size = count * math.prod(frame.shape)
        if count < WORTH_CACHING and size <= self.limit:
            return self._in_memory(tree, splits, frame, workers=0)
        try:
            cache, facts = self._cached(tree, splits, frame, size)
        except (NoSpace, PermissionError, NotADirectoryError, FileExistsError) as error:
            if size > self.limit:
                raise InputError(
                    f"the decoded images of {tree.path} take {size:,} bytes, and cannot be kept in {self.folder}: "
                    f"{error}; make space there, name another folder with --data-dir, take a smaller --image-size, "
                    "or decode them for every batch with --stream"
                ) from None
            log.warning(
                "%s: decoded anew by every command, because no cache can be written: %s", tree.path, error
            )
            return self._in_memory(tree, splits, frame, workers=self.processes)
        found = {}
        for split, files in splits.items():
            labels, known = facts.digests.get(split, ("", None))
            digest = known if labels == labels_digest(files.y) else None
            cached = CachedPixels(cache / f"{split}.npy", self.processes, digest)
            found[split] = StoredSplit(x=cached if size > self.limit else np.load(cached.path), digest=digest)
        return found

    @property
    def processes(self) -> int:
        """The processes that decode, or read ahead."""
        return default_workers() if self.workers is None else self.workers

    def _streamed(self, tree: Tree, files: LabelledFiles, frame: Frame) -> StoredSplit:
        """A split that is known by its listing: nothing is decoded before it is needed."""
        facts = {
            "listing": listing_digest(tree, files.names),
            "shape": frame.shape,
            "labels": labels_digest(files.y),
        }
        digest = hashlib.sha256(identity_of(facts).encode()).hexdigest()
        pixels = FilePixels(light(tree), Names(files.names), frame, self.processes, digest)
        return StoredSplit(x=pixels, digest=digest)

    def _in_memory(
        self, tree: Tree, splits: dict[str, LabelledFiles], frame: Frame, *, workers: int
    ) -> dict[str, StoredSplit]:
        found = {}
        for split, files in splits.items():
            out = np.empty((len(files.names), *frame.shape), np.uint8)
            first = 0
            for block in _decoded(tree, files.names, frame, workers):
                out[first : first + len(block)] = block
                first += len(block)
            found[split] = StoredSplit(x=out)
        return found

    def _cached(
        self, tree: Tree, splits: dict[str, LabelledFiles], frame: Frame, size: int
    ) -> tuple[Path, CacheFacts]:
        """The cache of these splits. One process builds it while the others wait; a damaged one is built again.

        Caches of the same images, divided or sized otherwise, may be asked for again; those of a listing that has
        changed are removed, and whoever is reading one has it open.
        """
        source = _source(tree)
        parts = {split: listing_digest(tree, files.names) for split, files in splits.items()}
        cache = self.folder / f"{source}-{identity_of({'shape': frame.shape, 'splits': parts})}"
        if (facts := _facts(cache)) is not None:
            return cache, facts
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(cache):
            if (facts := _facts(cache)) is not None:  # built by another process, meanwhile
                return cache, facts
            free = shutil.disk_usage(self.folder).free
            if free < SPARE * size:
                raise NoSpace(f"only {free:,} bytes of its disk are free")
            listing = listing_digest(tree, sorted(n for files in splits.values() for n in files.names))
            log.info("decoding the images of %s once, to %s", tree.path, cache)
            with atomic_folder(cache) as part:
                digests = {
                    split: self._write(part / f"{split}.npy", tree, files, frame)
                    for split, files in splits.items()
                }
                facts = CacheFacts(source=str(tree.path), shape=frame.shape, listing=listing, digests=digests)
                write_document(part / "cache.json", "decoded images", facts)
            for other in self.folder.glob(f"{source}-*"):
                if other.is_dir() and ((found := _facts(other)) is None or found.listing != listing):
                    shutil.rmtree(other, ignore_errors=True)
        return cache, facts

    def _write(self, path: Path, tree: Tree, files: LabelledFiles, frame: Frame) -> tuple[str, str]:
        """Write the pixels of a split; the digests of its labels and of the whole split.

        Plain writes fail with an error where a disk is full; those to mapped memory would end the process.
        """
        shape = (len(files.names), *frame.shape)
        digest = pixels_digest((shape[0], shape[3], *shape[1:3]), torch.uint8)
        with space_for(path, math.prod(shape)), path.open("wb") as out:
            np.lib.format.write_array_header_1_0(
                out, {"descr": "|u1", "fortran_order": False, "shape": shape}
            )
            for block in _decoded(tree, files.names, frame, self.processes):
                out.write(block.data)
                digest.update(block.data)
        digest.update(files.y.tobytes())
        return labels_digest(files.y), digest.hexdigest()

    def headers(self, tree: Tree, names: Sequence[str]) -> list[Header]:
        """The different headers among these images; kept for the next time."""

        def found() -> list[Header]:
            return list(dict.fromkeys(h for block in self._blocks(_headers, tree, names) for h in block))

        return self.kept("headers", tree, names, found, list[Header])

    def unreadable(self, tree: Tree, names: Sequence[str]) -> dict[str, str]:
        """The images that cannot be decoded, each with the reason; kept for the next time."""

        def found() -> dict[str, str]:
            blocks = self._blocks(find_unreadable, tree, names)
            return {name: reason for block in blocks for name, reason in block.items()}

        return self.kept("unreadable", tree, names, found, dict[str, str])

    def content_digest(self, tree: Tree) -> str:
        """SHA-256 of the names and contents of all files; read once, and kept as long as their listing stays.

        Of a tree that is a single file it is that of its content.
        """
        names = list(tree.files)

        def found() -> str:
            if names == ["."]:
                return file_digest(tree, ".")
            digest = hashlib.sha256()
            for block in self._blocks(_content, tree, names):
                digest.update(block)
            return digest.hexdigest()

        return self.kept("content", tree, names, found, str, lambda _: True)

    def known_content(self, tree: Tree) -> str | None:
        """The content digest of all files of a tree, where it was found before."""
        return self.known("content", tree, None, str)

    def _blocks(
        self, make: Callable[[Tree, Sequence[str]], T], tree: Tree, names: Sequence[str]
    ) -> Iterator[T]:
        """What is made of the files, some at a time, by worker processes where they are many."""
        workers = 0 if len(names) < WORTH_CACHING else self.processes
        of_block = partial(_of_block, make, light(tree), Names(names))
        yield from prefetched(of_block, range(0, len(names), AT_ONCE), workers)

    def kept(
        self,
        kind: str,
        tree: Tree,
        names: Sequence[str],
        find: Callable[[], T],
        as_type: type[T],
        worth: Callable[[T], bool] | None = None,
    ) -> T:
        """What was found of these files while their listing was the same; else it is found now, and written down.

        Of few files nothing is written down, unless ``worth`` says that what was found of them is to be kept. One
        process finds it while the others wait; each finds it for itself where nothing can be written.
        """
        if len(names) < WORTH_CACHING and worth is None:
            return find()
        if (known := self.known(kind, tree, names, as_type)) is not None:
            return known
        path = self._path(kind, tree, names)
        with ExitStack() as lock:
            refused: Exception | None = None
            try:
                lock.enter_context(locked(path))
            except (NoSpace, OSError) as error:
                refused = error
            if (known := _read_found(path, as_type)) is not None:  # by another process, meanwhile
                return known
            value = find()
            if worth is not None and not worth(value):
                return value
            try:
                if refused is not None:
                    raise refused
                write_document(path, "found in files", _Found(value))
            except (NoSpace, OSError) as error:
                log.warning("the %s of %s are not kept for the next time: %s", kind, tree.path, error)
                return value
            for other in self.folder.glob(f"{_source(tree)}-*.{kind}.json"):
                if other != path:
                    other.unlink(missing_ok=True)
            return value

    def known(self, kind: str, tree: Tree, names: Sequence[str] | None, as_type: type[T]) -> T | None:
        """What was found of these files (None: of all) before and is kept; None where nothing is."""
        if not any(self.folder.glob(f"{_source(tree)}-*.{kind}.json")):
            return None  # without the digest of a long listing
        names = list(tree.files) if names is None else names
        return _read_found(self._path(kind, tree, names), as_type)

    def _path(self, kind: str, tree: Tree, names: Sequence[str]) -> Path:
        return self.folder / f"{_source(tree)}-{listing_digest(tree, sorted(names))[:20]}.{kind}.json"


@dataclass(frozen=True)
class _Found(Generic[T]):
    value: T


def _read_found(path: Path, as_type: type[T]) -> T | None:
    """What such a document holds; None where it is missing or damaged."""
    with suppress(InputError):
        return read_document(path, "found in files", _Found[as_type]).value  # type: ignore[valid-type]
    return None


def labels_digest(y: NDArray[np.int64]) -> str:
    """SHA-256 of the labels of a split."""
    return hashlib.sha256(y.tobytes()).hexdigest()


def _source(tree: Tree) -> str:
    """The beginning of the names of all that is kept of a tree."""
    return hashlib.sha256(os.fsencode(tree.path.resolve())).hexdigest()[:16]


def _facts(cache: Path) -> CacheFacts | None:
    """What is known of a cache; None where it is missing or damaged."""
    try:
        facts = read_document(cache / "cache.json", "decoded images", CacheFacts)
        whole = all(CachedPixels(cache / f"{split}.npy").shape[1:] == facts.shape for split in facts.digests)
    except (InputError, OSError):
        return None
    return facts if whole else None


def _of_block(make: Callable[[Tree, Sequence[str]], T], tree: Tree, names: Sequence[str], first: int) -> T:
    return make(tree, names[first : first + AT_ONCE])


def _decoded(tree: Tree, names: Sequence[str], frame: Frame, workers: int) -> Iterator[Array]:
    """The pixels of the images in turn, some at a time (b, H, W, C)."""
    pixels = FilePixels(light(tree), Names(names), frame)
    for block in prefetched(pixels.__getitem__, torch.split(torch.arange(len(names)), AT_ONCE), workers):
        yield block.numpy()


def _headers(tree: Tree, names: Sequence[str]) -> list[Header]:
    return list(dict.fromkeys(read_header(tree, name) for name in names))


def _content(tree: Tree, names: Sequence[str]) -> bytes:
    lines = (f"{name}\0{file_digest(tree, name)}\n" for name in names)
    return "".join(lines).encode(errors="surrogateescape")
