"""A run's folder: its spec, history, checkpoints, model and results; every write atomic."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from freeat.errors import InputError
from freeat.files.documents import is_unfinished, read_json, write_json
from freeat.files.locks import LEASE
from freeat.files.tensors import Checkpoints, load_tensors, save_tensors
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.training.records import Record

FORMAT = 1
PROBE = ".writable"
ANOTHER_PLACE = "choose another --out"


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints")

    @property
    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def check_exists(self) -> None:
        """Refuse a folder that is none of a run."""
        if not self.exists:
            raise InputError(f"{self.path} is not a run folder: it has no run.json")

    def check(self, spec: TrainSpec, evaluation: EvalSpec) -> None:
        """Make sure this folder is free, or is this spec's; refuse anything else. Touches nothing."""
        if self.exists:
            changes = _changes(self.spec, spec) + _changes(self.evaluation, evaluation)
            if changes or self.description["identity"] != spec.identity:
                raise InputError(
                    f"{self.path} holds a run of another spec ({', '.join(changes) or 'older semantics'}): "
                    "choose another --out, or delete the folder"
                )
            return
        if self.path.exists() and not (self.path.is_dir() and all(map(_left_over, self.path.iterdir()))):
            raise InputError(
                f"{self.path} exists and is not a run folder: choose another --out; nothing was touched"
            )

    def claim(self) -> None:
        """Make the folder, and make sure that it can be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / PROBE
            probe.touch()
            probe.unlink(missing_ok=True)  # another process may be probing too
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another --out"
            ) from None

    @property
    def empty(self) -> bool:
        """Whether the run has nothing to show for itself yet: no record, no checkpoint, no weights."""
        saved = (*self.path.glob("*.safetensors"), *self.checkpoints.folder.glob("update-*"))
        return not saved and self.history_length == 0

    def reset(self) -> None:
        """Remove the description of an empty run, so that the folder is free again."""
        for path in (self.path / "run.json", self.history_path, self.path / "wandb.json"):
            path.unlink(missing_ok=True)
        for logs in ("tensorboard", "wandb"):  # a tracker begins them before there is a record
            shutil.rmtree(self.path / logs, ignore_errors=True)
        with suppress(OSError):
            self.checkpoints.folder.rmdir()

    def tidy(self) -> None:
        """Remove what killed processes left of files they were writing; for the holder of the lease."""
        for path in filter(is_unfinished, self.path.iterdir()):
            path.unlink(missing_ok=True)

    def describe(self, spec: TrainSpec, evaluation: EvalSpec, facts: Mapping[str, Any]) -> None:
        """Write what the run is: spec, resolved choices, data, versions, machine, command."""
        document = {
            "identity": spec.identity,
            "spec": spec.words(),
            "resolved": {name: getattr(spec, name) for name in spec.settings()},
            "evaluation": evaluation.words(),
            **facts,
        }
        write_json(self.path / "run.json", document, format=FORMAT)

    @property
    def description(self) -> dict[str, Any]:
        self.check_exists()
        document = read_json(self.path / "run.json", format=FORMAT)
        if missing := [key for key in ("identity", "spec", "evaluation") if key not in document]:
            raise InputError(f"{self.path / 'run.json'} is damaged: it lacks {missing[0]!r}")
        return document

    @property
    def data_digest(self) -> str | None:
        """The digest of the data that the run was begun with, None before that."""
        if not self.exists:
            return None
        data = self.description.get("data")
        if data is None or "digest" not in data:
            raise InputError(f"{self.path / 'run.json'} is damaged: it lacks the data's digest")
        return str(data["digest"])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images the model takes."""
        channels, height, width = self.description["data"]["shape"]
        return channels, height, width

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return tuple(self.description["data"]["classes"])

    def check_data(self, digest: str, remedy: str = ANOTHER_PLACE) -> None:
        """Refuse other data than the run was begun with."""
        self.check_same("data", self.data_digest, digest, remedy)

    def check_algorithm(self, source: str | None) -> None:
        """Refuse another source of an imported algorithm than the run was begun with."""
        self.check_same("source lines of the algorithm", self.description.get("algorithm_source"), source)

    def check_same(self, what: str, before: str | None, now: str | None, remedy: str = ANOTHER_PLACE) -> None:
        """Refuse other ground than the run stands on."""
        if before != now:
            raise InputError(
                f"the {what} are not those {self.path} was begun with ({str(before)[:12]} → {str(now)[:12]}): "
                f"restore them, or {remedy}"
            )

    @property
    def spec(self) -> TrainSpec:
        return TrainSpec.of(self.description["spec"])

    @property
    def evaluation(self) -> EvalSpec:
        return EvalSpec.of(self.description["evaluation"])

    @property
    def history_path(self) -> Path:
        return self.path / "history.jsonl"

    def append(self, record: Record) -> int:
        """Add a record to the history; returns the history's length in bytes."""
        with self.history_path.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def truncate(self, length: int) -> None:
        """Cut the history to what the checkpoint knew of: later lines will be written again."""
        if self.history_length < length:
            raise InputError(
                f"{self.history_path} is shorter than its checkpoint knew: restore it, or delete {self.path}"
            )
        if self.history_path.exists():
            with self.history_path.open("rb+") as file:
                file.truncate(length)

    @property
    def history_length(self) -> int:
        return self.history_path.stat().st_size if self.history_path.exists() else 0

    def history(self) -> Iterator[Record]:
        """The records in order, without a line that is still being written."""
        if self.history_path.exists():
            *whole, _ = self.history_path.read_text(encoding="utf-8", errors="replace").split("\n")
            for number, line in enumerate(whole, 1):
                yield _record(line, f"{self.history_path}, line {number}")

    def publish_model(self, name: str, state: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """The weights under a name: ``model`` (the last), ``ema``, ``best``."""
        save_tensors(self.path / f"{name}.safetensors", dict(state), dict(facts))

    def weights(self, name: str = "model") -> dict[str, Tensor]:
        """The weights stored under a name."""
        return self._stored(name)[0]

    def weights_update(self, name: str = "model") -> int:
        """The update after which these weights were stored."""
        return int(self._stored(name)[1]["update"])

    def _stored(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        path = self.path / f"{name}.safetensors"
        if not path.is_file():
            known = sorted(file.stem for file in self.path.glob("*.safetensors"))
            have = (
                f"it has {', '.join(known)}" if known else "the run has not finished; run it again to go on"
            )
            raise InputError(f"{self.path} holds no weights called {name!r}: {have}")
        return load_tensors(path)

    def publish_result(self, result: Mapping[str, Any]) -> None:
        write_json(self.path / "result.json", dict(result), format=FORMAT)

    @property
    def result(self) -> dict[str, Any] | None:
        path = self.path / "result.json"
        return read_json(path, format=FORMAT) if path.is_file() else None


def _record(line: str, where: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is damaged: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where} is damaged: it holds no record")
    return record


def _left_over(path: Path) -> bool:
    """Whether a run that was killed before it was described left this file behind."""
    return path.name in (LEASE, PROBE) or is_unfinished(path)


def _changes(found: TrainSpec | EvalSpec, asked: TrainSpec | EvalSpec) -> list[str]:
    """The settings in which two specs differ, in words."""
    pairs = ((name, getattr(found, name), getattr(asked, name)) for name in found.settings())
    return [f"{name} {old!r} → {new!r}" for name, old, new in pairs if old != new]
