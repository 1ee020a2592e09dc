"""Tensor files and checkpoints: atomic, checksummed, loaded without executing code.

Where the newest checkpoint is damaged, the one before it is used.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from freeat.errors import InputError
from freeat.files.documents import (
    FORMATS,
    NewerFormat,
    check_format,
    decoded,
    identity_of,
    is_unfinished,
    plain,
    read_json,
    remove,
    remove_abandoned,
    sha256,
    to_json,
    write_bytes,
    write_json,
)
from freeat.files.reading import check_regular, parse_json, refusing

log = logging.getLogger(__name__)

KEPT = 2

T = TypeVar("T")
Facts = Mapping[str, Any]


def save_tensors(path: Path, tensors: dict[str, Tensor], facts: Facts | None = None) -> None:
    """Write a safetensors file with a format number, atomically."""
    stored = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    # One item, because safetensors writes several in random order, and equal weights must give equal files.
    metadata = {"freeat": json.dumps({"format": FORMATS["tensors"], "facts": dict(facts or {})})}
    write_bytes(path, save(stored, metadata))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Facts]:
    """The tensors and facts of a safetensors file, of freeat or of another program."""
    check_regular(path)
    with refusing(path, "safetensors file"), safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    own = parse_json(metadata.get("freeat", '{"format": 0, "facts": {}}'), f"{path}: its metadata")
    if not isinstance(own, dict) or not isinstance(own.get("facts"), dict):
        raise InputError(f"{path} is damaged: its metadata hold no facts")
    check_format(path, own.get("format"), FORMATS["tensors"])
    with refusing(path, "safetensors file"):
        return load_file(path), own["facts"]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, of which the newest few are kept."""

    folder: Path

    def save(self, update: int, tensors: dict[str, Tensor], facts: object) -> None:
        """Publish a checkpoint: first the tensors, then typed facts with the digest of both, which make it valid."""
        path = self.folder / f"update-{update:09d}.safetensors"
        save_tensors(path, tensors)
        stored = json.loads(to_json(plain(facts)))
        document = {"sha256": _digest(path, stored), "facts": stored}
        write_json(path.with_suffix(".json"), document, format=FORMATS["checkpoint"])
        self._keep(self._published()[-KEPT:])

    def newest(self, kind: type[T]) -> tuple[dict[str, Tensor], T] | None:
        """The newest checkpoint that is whole, its facts as this type; damaged ones are named in a warning."""
        for path in reversed(self._published()):
            tensors = path.with_suffix(".safetensors")
            try:
                stored = read_json(path, format=FORMATS["checkpoint"])
                if _digest(tensors, stored.get("facts")) != stored.get("sha256"):
                    raise InputError(f"{path} and {tensors.name} do not match their checksum")
                return load_tensors(tensors)[0], decoded(stored.get("facts"), kind, path)
            except NewerFormat:
                raise
            except (InputError, OSError) as error:
                log.warning("damaged checkpoint skipped: %s; the one before it is used", error)
        return None

    @property
    def latest_update(self) -> int | None:
        """The update of the newest checkpoint, from its file name: nothing is read."""
        remove_abandoned(self.folder)
        published = self._published()
        return int(published[-1].stem.removeprefix("update-")) if published else None

    def clear(self) -> None:
        """Remove all: the run is finished and its model is stored."""
        self._keep([])

    def _keep(self, published: list[Path]) -> None:
        """Remove other checkpoints, and unfinished files of killed processes."""
        kept = {path.stem for path in published}
        for path in self.folder.glob("*"):
            if is_unfinished(path) or (path.name.startswith("update-") and path.stem not in kept):
                remove(path)

    def _published(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("update-*.json") if path.stem[7:].isdecimal())


def _digest(tensors: Path, facts: object) -> str:
    """The digest of a checkpoint: of the file of its tensors, and of its facts."""
    return identity_of({"tensors": sha256(tensors), "facts": facts})
