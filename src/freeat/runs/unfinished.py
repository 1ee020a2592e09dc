"""The finished batches of a cell that is still being measured, so that a long one goes on where it was stopped."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from freeat.compute.passes import Passes
from freeat.errors import InputError
from freeat.evaluation.evaluate import TENSORS, Evaluation
from freeat.files.tensors import load_tensors, save_tensors

log = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds of finished work that may be lost at most."""


@dataclass(frozen=True)
class Unfinished:
    """Parts of a measurement in a folder (None: none are kept), one file each, in the order of the images."""

    folder: Path | None

    @property
    def keeps(self) -> bool:
        """Whether there is a place for parts."""
        return self.folder is not None

    def parts(self, index: Tensor) -> Iterator[Evaluation]:
        """What was measured before of the images with these numbers, in their order.

        Each part begins where the one before it ended. A file that is damaged, or that another process cut otherwise,
        is removed with all after it: they are measured again.
        """
        index = index.cpu()
        number = done = 0
        while (path := self._path(number)) is not None and path.is_file():
            try:
                part = _read(path)
            except (InputError, KeyError) as error:
                log.warning("%s is measured again: %s", path, error)
                break
            if not torch.equal(part.index, index[done : done + len(part.index)]):
                log.warning("%s is measured again: it does not follow the part before it", path)
                break
            number, done = number + 1, done + len(part.index)
            yield part
        while (path := self._path(number)) is not None and path.is_file():
            path.unlink()
            number += 1

    def add(self, number: int, part: Evaluation) -> None:
        """Keep the part that follows ``number`` others."""
        path = self._path(number)
        if path is None:
            return
        columns = {name: getattr(part, name) for name in TENSORS}
        facts = {name: getattr(part, name) for name in ("seconds", "notes", "classes", "population")}
        save_tensors(
            path,
            {name: column for name, column in columns.items() if column is not None},
            facts | {"passes": asdict(part.passes)},
        )

    def clear(self) -> None:
        """The whole is published: its parts are no longer needed."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path | None:
        return None if self.folder is None else self.folder / f"part-{number:05d}.safetensors"


NOWHERE = Unfinished(None)
"""For a measurement that keeps nothing of itself on the way."""


@contextmanager
def until_published(unfinished: Unfinished) -> Iterator[Unfinished]:
    """Parts that go when the block ends well, and stay for the next time otherwise."""
    yield unfinished
    unfinished.clear()


def _read(path: Path) -> Evaluation:
    columns, facts = load_tensors(path)
    return Evaluation(
        **columns,
        passes=Passes(**facts["passes"]),
        seconds=facts["seconds"],
        notes=tuple(facts["notes"]),
        classes=facts["classes"],
        population=facts["population"],
    )
