"""The records of a run in TensorBoard or Weights & Biases, each record once.

What is logged is what the run's folder keeps, so a run that is resumed, or tracked only later, has the same log.
"""

import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Protocol, Self

from freeat.errors import InputError, need, unknown_name
from freeat.evaluation.evaluator import Scores
from freeat.files.documents import plain, read_document, write_document
from freeat.runs.folder import RunFolder
from freeat.training.records import Record


class Log(Protocol):
    """A log of numbers by name and weight update."""

    last: int
    """The last update that is in it already; -1 where it is empty."""

    def write(self, update: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLog:
    """Event files in ``tensorboard`` of the run's folder, rewritten from the history in every session."""

    def __init__(self, folder: RunFolder) -> None:
        self.last = -1
        tensorboard = need("tensorboardX", extra="tensorboard", what="--track tensorboard")
        logs = folder.path / "tensorboard"
        shutil.rmtree(logs, ignore_errors=True)
        self._writer = tensorboard.SummaryWriter(str(logs))

    def write(self, update: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)
        self._writer.flush()
        self.last = update

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True, kw_only=True)
class WandbNote:
    """The run of Weights & Biases that belongs to a run here, and the last update that it was sent."""

    id: str
    last: int


class WandbLog:
    """A run of Weights & Biases. ``wandb.json`` in the run's folder holds the last update sent, which cannot be undone.

    Project, entity and mode (``WANDB_MODE=offline``) are set by its own environment variables.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._wandb: Any = need("wandb", extra="wandb", what="--track wandb")
        self._note = folder.path / "wandb.json"
        known = read_document(self._note, "tracking", WandbNote) if self._note.is_file() else None
        self.id = known.id if known else secrets.token_hex(4)
        self.last = known.last if known else -1
        try:
            self._run = self._wandb.init(
                id=self.id,
                resume="allow",
                name=folder.path.resolve().name,
                dir=str(folder.path),
                config=plain(folder.spec),
                settings=self._wandb.Settings(console="off", silent=True),
            )
        except self._wandb.Error as error:
            raise InputError(
                f"wandb does not begin ({error}): run `wandb login`, or set WANDB_MODE=offline and run the same "
                "command again to resume"
            ) from None

    def write(self, update: int, values: dict[str, float]) -> None:
        self._run.log(values, step=update)
        self.last = update
        write_document(self._note, "tracking", WandbNote(id=self.id, last=update))

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, tuple[str, Callable[[RunFolder], Log]]] = {
    "tensorboard": ("tensorboardX", TensorBoardLog),
    "wandb": ("wandb", WandbLog),
}


class Tracking:
    """A callback that writes the history of a run to its logs."""

    def __init__(self, kinds: Sequence[str], folder: RunFolder) -> None:
        for kind in kinds:
            if kind not in LOGS:
                raise unknown_name("tracker", kind, LOGS)
            need(LOGS[kind][0], extra=kind, what=f"--track {kind}")
        self.kinds, self.folder = kinds, folder
        self._logs: list[Log] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in self._logs or ():
            log.close()

    def step(self, update: int, total: int, loss: float | None) -> None:
        self._opened()  # before the first record, so that an unreachable tracker fails early

    def record(self, record: Record) -> None:
        self.catch_up()

    def catch_up(self) -> None:
        """Log every record of the history that is not in the logs yet; of two at the end, the final one."""
        end = self.folder.description.updates
        history = [one for one in self.folder.history() if one.kind == "final" or one.update < end]
        batch = self.folder.spec.batch_size
        for log in self._opened():
            for before, record in pairwise([None, *history]):
                assert record is not None
                if record.update > log.last:
                    log.write(record.update, scalars(record, before, batch))

    def _opened(self) -> list[Log]:
        if self._logs is None:
            self._logs = [LOGS[kind][1](self.folder) for kind in self.kinds]
        return self._logs


def scalars(record: Record, before: Record | None, batch_size: int) -> dict[str, float]:
    """The numbers of a record by the names that they are logged under.

    ``throughput`` is in images per second since the record ``before``, evaluation included.
    """
    updates, seconds = record.update, record.seconds
    if before is not None:
        updates, seconds = updates - before.update, seconds - before.seconds
    values = {
        "loss": record.training_loss,
        "lr": record.lr,
        "epoch": record.epoch,
        "gradient_evaluations": record.gradient_evaluations,
        "throughput": updates * batch_size / seconds if seconds > 0 else None,
        **_accuracies(record),
        **{f"ema/{name}": value for name, value in _accuracies(record.ema).items()},
        **{f"slow/{name}": value for name, value in _accuracies(record.slow).items()},
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def _accuracies(scores: Scores | None) -> dict[str, float | None]:
    if scores is None:
        return {}
    found: dict[str, float | None] = {"gap": scores.gap.value, "clean_gap": scores.clean_gap.value}
    for name, split in scores.splits.items():
        found[f"robust/{name}"], found[f"robust_loss/{name}"] = split.robust_accuracy, split.robust_loss
        found[f"clean/{name}"], found[f"clean_loss/{name}"] = split.clean_accuracy, split.clean_loss
    return found
