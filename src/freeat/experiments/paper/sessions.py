"""How long a reproduction took, over all the processes that worked at it, also those that were killed."""

import logging
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freeat.errors import InputError
from freeat.files.documents import read_json, write_json

log = logging.getLogger(__name__)

FORMAT = 1


@dataclass(kw_only=True)
class Session:
    """One process at work on a plan, from before it is made; what it says of itself is on disk after every task."""

    folder: Path
    command: str
    tasks: int = 0
    token: str = field(default_factory=lambda: secrets.token_hex(6))
    began: float = field(default_factory=time.time)

    @classmethod
    def of(cls, plan: Path, command: str) -> "Session":
        """A session of the plan kept at that path."""
        return cls(folder=plan.with_suffix(".sessions"), command=command)

    def carried_out(self) -> None:
        """One more task was carried out, not found."""
        self.tasks += 1
        self._write()

    def ended(self) -> None:
        """All is done, the tables and figures too; a session that only found what was there leaves no trace."""
        if self.tasks:
            self._write()

    def _write(self) -> None:
        words = {
            "command": self.command,
            "began": self.began,
            "seconds": time.time() - self.began,
            "tasks": self.tasks,
        }
        write_json(self.folder / f"{self.token}.json", words, format=FORMAT)


def sessions(plan: Path) -> Iterator[dict[str, Any]]:
    """The sessions of a plan that carried tasks out."""
    for path in sorted(plan.with_suffix(".sessions").glob("*.json")):
        try:
            yield read_json(path, format=FORMAT)
        except InputError as error:  # of the time that was taken, not of the results
            log.warning("the time taken lacks a session: %s", error)


def taken(plans: Iterable[Path]) -> float:
    """Seconds in which at least one process was at work on one of the plans."""
    spans = sorted((one["began"], one["began"] + one["seconds"]) for plan in plans for one in sessions(plan))
    total, until = 0.0, 0.0
    for began, ended in spans:
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total
