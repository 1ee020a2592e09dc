"""Checkpoints: atomic, checksummed, loadable without executing code; a damaged newest gives way to the previous."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from freeat.errors import InputError
from freeat.files.documents import (
    NewerFormat,
    atomic,
    check_format,
    is_unfinished,
    read_json,
    sha256,
    write_json,
)

log = logging.getLogger(__name__)

FORMAT = 1
KEPT = 2


def save_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any] | None = None) -> None:
    """A safetensors file with our format number, written atomically."""
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    # One entry, because safetensors writes several in random order: equal weights shall be equal files.
    metadata = {"freeat": json.dumps({"format": FORMAT, "facts": facts or {}})}
    with atomic(path) as temporary:
        save_file(plain, temporary, metadata)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a safetensors file, ours or anybody's."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        ours = json.loads(metadata.get("freeat", "{}"))
        check_format(path, ours.get("format", 0), FORMAT)
        return load_file(path), ours.get("facts", {})
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise InputError(f"{path} is not a readable safetensors file: {error}") from None


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, of which the newest few are kept."""

    folder: Path

    def save(self, update: int, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Publish a checkpoint: first the tensors, then the facts with the tensors' digest, which make it valid."""
        path = self.folder / f"update-{update:09d}.safetensors"
        save_tensors(path, tensors)
        write_json(path.with_suffix(".json"), {"sha256": sha256(path), **facts}, format=FORMAT)
        self._keep(self._published()[-KEPT:])

    def newest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole; damaged ones are named in a warning."""
        for path in reversed(self._published()):
            tensors = path.with_suffix(".safetensors")
            try:
                facts = read_json(path, format=FORMAT)
                if not tensors.exists() or sha256(tensors) != facts.get("sha256"):
                    raise InputError(f"{tensors} does not match its checksum")
                return load_tensors(tensors)[0], facts
            except NewerFormat:
                raise
            except InputError as error:
                log.warning("damaged checkpoint skipped: %s; the one before it is used", error)
        return None

    @property
    def latest_update(self) -> int | None:
        """How far the newest checkpoint is, by its name: nothing is read."""
        published = self._published()
        return int(published[-1].stem.removeprefix("update-")) if published else None

    def clear(self) -> None:
        """Remove all: the run is finished and its model stands beside them."""
        self._keep([])

    def _keep(self, published: list[Path]) -> None:
        """Remove other checkpoints, and what a killed process left of one it was writing."""
        kept = {path.stem for path in published}
        for path in self.folder.glob("*"):
            if is_unfinished(path) or (path.name.startswith("update-") and path.stem not in kept):
                path.unlink(missing_ok=True)

    def _published(self) -> list[Path]:
        return sorted(self.folder.glob("update-*.json"))
