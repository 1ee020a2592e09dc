"""A run's folder: its spec, history, checkpoints, model and results; every write atomic."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from freeat.compute.machine import Provenance
from freeat.errors import InputError
from freeat.files.documents import (
    check_output,
    decoded,
    is_unfinished,
    plain,
    read_document,
    remove,
    space_for,
    write_document,
)
from freeat.files.locks import check_unclaimed, is_leftover
from freeat.files.reading import LARGEST_DOCUMENT, parse_json, read_bytes
from freeat.files.tensors import Checkpoints, Facts, load_tensors, save_tensors
from freeat.runs.spec import SEMANTICS, EvalSpec, TrainSpec
from freeat.training.records import Record

if TYPE_CHECKING:
    from freeat.data import DataSet

ANOTHER_OUT = "choose another --out"
WRITTEN = (
    "run.json",
    "history.jsonl",
    "result.json",
    "model.safetensors",
    "ema.safetensors",
    "best.safetensors",
)
"""The files that a run writes into its folder."""


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """The data a run was begun with; ``train`` and ``test`` count the images it uses.

    ``content`` is the digest of the content of their files, where ``digest`` is that of their listing and it was known.
    """

    name: str
    digest: str
    train: int
    test: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    content: str | None = None

    def is_same(self, data: "DataSet | DataFacts") -> bool:
        """Whether these are the same data: by their digest, or else by the content of their files."""
        return self.digest == data.digest or (self.content is not None and self.content == data.content)


@dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """The settings that depend on the machine, as they were when the run began.

    ``package`` is that of the network with its version (``timm 1.0.31``), where it is of one.
    """

    threads: int
    precision: str
    device: str
    processes: int
    torch: str
    package: str = ""


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """What a run is. Its settings are stored resolved: a later change of a default does not re-interpret it.

    ``spec`` is as the user gave it; ``resolved`` has the step, start, options, length and augmentation that followed
    from it by the defaults of its version. ``evaluation`` and ``resolved_evaluation`` are the same of its evaluations.
    ``semantics`` is that of the version that began the run.
    """

    identity: str
    semantics: int
    spec: TrainSpec
    resolved: TrainSpec
    evaluation: EvalSpec
    resolved_evaluation: EvalSpec
    updates: int
    data: DataFacts
    initial_weights: str
    new_head: tuple[str, ...]
    parameters: int
    algorithm_source: str | None = None
    chosen: MachineSettings
    notes: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class RunResult(Record):
    """The result of a run: its final record, the digest of its weights, and notes for its reader."""

    identity: str
    weights: str
    notes: tuple[str, ...]


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
        """Refuse a folder without a run."""
        if not self.exists:
            raise InputError(f"{self.path} is not a run folder: it has no run.json")

    def check(self, spec: TrainSpec, evaluation: EvalSpec) -> None:
        """Refuse a folder that is neither free nor of this spec. Changes nothing."""
        if self.exists:
            found = self.description
            differences = found.spec.differences(spec) + found.evaluation.differences(evaluation)
            changes = [f"{name} {old!r} → {new!r}" for name, old, new in differences]
            if changes or found.semantics != SEMANTICS:
                raise InputError(
                    f"{self.path} holds a run of another spec ({', '.join(changes) or 'older semantics'}): "
                    "choose another --out, or delete the folder"
                )
        else:
            check_unclaimed(self.path, "is not a run folder")
        if self.result is None:
            check_output(*(self.path / name for name in WRITTEN), self.checkpoints.folder / "update")

    @property
    def empty(self) -> bool:
        """Whether the run has saved nothing of its training: no checkpoint, no weights, no record after update 0."""
        saved = (*self.path.glob("*.safetensors"), *self.checkpoints.folder.glob("update-*"))
        return not saved and all(record.update == 0 for record in self.history())

    def reset(self) -> None:
        """Remove the description of an empty run, so that the folder is free again."""
        for path in (self.path / "run.json", self.history_path, self.path / "wandb.json"):
            path.unlink(missing_ok=True)
        for logs in ("tensorboard", "wandb"):  # a tracker begins them before there is a record
            shutil.rmtree(self.path / logs, ignore_errors=True)
        with suppress(OSError):
            self.checkpoints.folder.rmdir()

    def remove_unfinished(self) -> None:
        """Remove what killed processes left of files they were writing; for the holder of the lease."""
        for path in filter(is_unfinished, self.path.iterdir()):
            remove(path)

    @property
    def has_leftovers(self) -> bool:
        """Whether a killed process left something that a finished run does not need."""
        return any(map(is_leftover, self.path.iterdir())) or self.checkpoints.latest_update is not None

    def describe(self, description: RunDescription) -> None:
        """Write what the run is."""
        write_document(self.path / "run.json", "run", description)

    @property
    def description(self) -> RunDescription:
        """What the run is."""
        self.check_exists()
        return read_document(self.path / "run.json", "run", RunDescription)

    @property
    def data_digest(self) -> str | None:
        """The digest of the data that the run was begun with, None before that."""
        return self.description.data.digest if self.exists else None

    def check_data(self, data: "DataSet | DataFacts", remedy: str = ANOTHER_OUT) -> None:
        """Refuse other data than the run was begun with."""
        if not (self.exists and self.description.data.is_same(data)):
            self.check_same("data", self.data_digest, data.digest, remedy)

    def check_same(self, what: str, before: str | None, now: str | None, remedy: str = ANOTHER_OUT) -> None:
        """Refuse to resume or to reuse a run when something that it depends on has changed."""
        if before != now:
            raise InputError(
                f"the {what} are not those {self.path} was begun with ({str(before)[:12]} → {str(now)[:12]}): "
                f"restore them, or {remedy}"
            )

    @property
    def spec(self) -> TrainSpec:
        """The settings of the run, resolved."""
        return self.description.resolved

    @property
    def evaluation(self) -> EvalSpec:
        """How the run is evaluated, resolved."""
        return self.description.resolved_evaluation

    @property
    def history_path(self) -> Path:
        return self.path / "history.jsonl"

    def append(self, record: Record) -> int:
        """Add a record to the history; returns the history's length in bytes."""
        line = json.dumps(plain(record), ensure_ascii=False).encode() + b"\n"
        with space_for(self.history_path, len(line)), self.history_path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def truncate(self, length: int) -> None:
        """Cut the history to the length stored in the checkpoint: later lines will be written again."""
        if self.history_length < length:
            raise InputError(
                f"{self.history_path} is shorter than its checkpoint says: restore it, or delete {self.path}"
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
            data = read_bytes(self.history_path, limit=LARGEST_DOCUMENT)
            *whole, _ = data.decode(errors="replace").split("\n")
            for number, line in enumerate(whole, 1):
                where = f"{self.history_path}, line {number}"
                yield decoded(parse_json(line, where), Record, where)

    def publish_model(self, name: str, state: Mapping[str, Tensor], update: int) -> None:
        """Store the weights after this update under a name: ``model`` (the last), ``ema``, ``slow``, ``best``."""
        save_tensors(self.path / f"{name}.safetensors", dict(state), {"update": update})

    def weights(self, name: str = "model") -> dict[str, Tensor]:
        """The weights stored under a name."""
        return self._stored(name)[0]

    def weights_update(self, name: str = "model") -> int:
        """The update after which these weights were stored."""
        update = self._stored(name)[1].get("update")
        if not isinstance(update, int):
            raise InputError(f"{self.path}/{name}.safetensors is damaged: it does not say its update")
        return update

    def _stored(self, name: str) -> tuple[dict[str, Tensor], Facts]:
        path = self.path / f"{name}.safetensors"
        if not path.is_file():
            known = sorted(file.stem for file in self.path.glob("*.safetensors"))
            have = (
                f"it has {', '.join(known)}"
                if known
                else "the run has not finished; run it again to resume it"
            )
            raise InputError(f"{self.path} holds no weights called {name!r}: {have}")
        return load_tensors(path)

    def publish_result(self, result: RunResult) -> None:
        """Write the result: the run is finished."""
        write_document(self.path / "result.json", "result", result)

    @property
    def result(self) -> RunResult | None:
        """The result; None while the run is not finished."""
        path = self.path / "result.json"
        return read_document(path, "result", RunResult) if path.is_file() else None
