"""The plan of a reproduction in its store: made once, by one process, and the same for all that share the store."""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from freeat.errors import InputError
from freeat.experiments.paper.planner import Plan, Wish
from freeat.files.documents import read_json, write_json
from freeat.files.locks import Busy, leased

log = logging.getLogger(__name__)

FORMAT = 1
WAIT = 0.5


def plan_path(store: Path, scale: str, wishes: Sequence[Wish]) -> Path:
    """Where the plan of these wishes is kept: another choice of tables or data sets has another plan."""
    keys = "\n".join(sorted(wish.task.key for wish in wishes))
    return store / "plans" / f"plan-{scale}-{hashlib.sha256(keys.encode()).hexdigest()[:8]}.json"


def settled_plan(path: Path, make: Callable[[], tuple[Plan, dict[str, Any]]]) -> Plan:
    """The stored plan; where there is none, one is made, while other processes wait for it."""
    while (plan := stored_plan(path)) is None:
        try:
            with leased(path.with_suffix(".lease")):
                if not path.is_file():
                    made, facts = make()
                    write_json(path, made.words() | facts, format=FORMAT)
        except Busy:
            time.sleep(WAIT)
    return plan


def stored_plan(path: Path) -> Plan | None:
    """The plan at that path, if it was made."""
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Plan:
    words = read_json(path, format=FORMAT)
    try:
        return Plan.of(words)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}): delete it to have it made again") from None


def plans_sharing(path: Path) -> list[Path]:
    """The plans in the store that have a task in common with this one, itself among them.

    One of another request that cannot be read is left out: only the time that was taken depends on it.
    """
    asked = _keys(path)
    return [other for other in sorted(path.parent.glob("plan-*.json")) if asked & _keys_if_read(other)]


def _keys(path: Path) -> set[str]:
    return {item.key for item in _read(path).items}


def _keys_if_read(path: Path) -> set[str]:
    try:
        return _keys(path)
    except InputError as error:
        log.warning("its time is not counted: %s", error)
        return set()
