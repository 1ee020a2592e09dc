"""The store of results: evaluations, transfers and sanity checks, each identified by all that it depends on.

A result is one JSON file, named by the hash of its identity. The finished blocks of a running evaluation are stored
beside it, so that an interrupted one loses at most a block.
"""

import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from freeat.attacks.result import Attack
from freeat.compute import Cost
from freeat.compute.machine import Provenance
from freeat.errors import InputError
from freeat.evaluation.evaluate import Evaluation, Outcomes, Queries
from freeat.evaluation.sanity import SanityCheck
from freeat.files.documents import (
    FORMATS,
    decoded,
    identity_of,
    read_document,
    read_json,
    remove_abandoned,
    to_json,
    write_document,
)
from freeat.files.locks import leased
from freeat.files.tensors import load_tensors, save_tensors
from freeat.models.imported import source_digest
from freeat.threat import make_ball

log = logging.getLogger(__name__)

RESULTS = "results"
"""The folder of results in a run's folder."""

NAME = re.compile(r"[0-9a-f]{20}\.json")
"""The file name of a result: the hash of its identity."""

SEMANTICS = 2
"""Raised whenever the same identity would give other numbers."""

Identity = dict[str, Any]
"""All that a result depends on: plain values by name."""


@dataclass(frozen=True, kw_only=True)
class PerturbationCost:
    """The cost of perturbations that were made on another model."""

    cost: Cost
    seconds: float
    queries: Queries | None = None


@dataclass(frozen=True, kw_only=True)
class StoredEvaluation(Outcomes, Provenance):
    """A model under one attack in one ball on images of one split, with how and where it was evaluated.

    ``source`` is the model on which the perturbations were made, where that is another one; ``own`` says that it has
    the same weights in the same layers. ``examples`` is the file of adversarial examples, if they were requested.
    ``constant_class`` is the name of the class of ``constant_answer``.
    """

    identity: Identity
    model: str
    weights: str
    data: str
    data_digest: str
    split: str
    attack: str
    iterate: str
    settings: dict[str, Any]
    black_box: bool
    norm: str
    eps: float
    seed: int
    batch_size: int
    device: str
    threads: int
    source: str | None = None
    own: bool = False
    perturbation_cost: PerturbationCost | None = None
    examples: str | None = None
    constant_class: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        make_ball(self.norm, self.eps)


@dataclass(frozen=True, kw_only=True)
class StoredChecks:
    """The sanity checks of one model in one ball."""

    identity: Identity
    checks: tuple[SanityCheck, ...]


@dataclass(frozen=True, kw_only=True)
class _BallFacts:
    norm: Literal["l2", "linf"]
    eps: float

    def __post_init__(self) -> None:
        make_ball(self.norm, self.eps)  # refuses a radius that no ball has


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What readers of a result need of its identity, besides that it is the same."""

    weights: str
    architecture: str
    source: str | None = None
    ball: _BallFacts | None = None


StoredResult = StoredEvaluation | StoredChecks
AnyResult = TypeVar("AnyResult", StoredEvaluation, StoredChecks)


@dataclass(frozen=True)
class Results:
    """The results in a folder; without one nothing is stored and nothing found."""

    folder: Path | None

    def find(self, identity: Mapping[str, Any], kind: type[AnyResult]) -> AnyResult | None:
        """The stored result of exactly this identity, if there is one."""
        path = self._path(identity)
        if path is None or not (path.exists() or path.is_symlink()):
            return None
        return read_document(path, "evaluation", kind)

    def save(self, result: StoredResult) -> None:
        """Publish a result under its identity, atomically."""
        path = self._path(result.identity)
        if path is not None:
            write_document(path, "evaluation", result)

    def paths(self) -> list[Path]:
        """The files of all results; what dead processes left beside them is removed."""
        if self.folder is None:
            return []
        remove_abandoned(self.folder)
        return sorted(path for path in self.folder.glob("*.json") if NAME.fullmatch(path.name))

    def evaluations(self, **part: Any) -> Iterator[StoredEvaluation]:
        """The stored evaluations and transfers whose identity has this part; damaged files are left out."""
        for path in self.paths():
            try:
                found = read_result(path)
            except InputError as error:
                log.warning("left out: %s", error)
                continue
            if isinstance(found, StoredEvaluation) and part.items() <= found.identity.items():
                yield found

    def blocks(self, identity: Mapping[str, Any]) -> "Blocks":
        """The finished blocks of an evaluation."""
        path = self._path(identity)
        return Blocks(None if path is None else path.with_suffix(".blocks"))

    def _path(self, identity: Mapping[str, Any]) -> Path | None:
        return None if self.folder is None else self.folder / f"{identity_of(identity)}.json"


def attack_identity(attack: Attack) -> Identity:
    """An attack by its name and settings; one that is not built in also by its class and the source of its module."""
    kind = type(attack)
    identity = {"name": attack.name, **settings_of(attack)}
    if kind.__module__.partition(".")[0] != "freeat":
        path = f"{kind.__module__}:{kind.__qualname__}"
        identity |= {"class": path, "source": source_digest(path)}
    return identity


def settings_of(value: object) -> dict[str, Any]:
    """The fields of a value as JSON has them."""
    if not is_dataclass(value):
        return {}
    found = {field.name: getattr(value, field.name) for field in fields(value) if field.compare}
    settings: dict[str, Any] = json.loads(to_json(found))
    return settings


def read_result(path: Path) -> StoredResult:
    """A stored result of either kind."""
    document = read_json(path, format=FORMATS["evaluation"])
    result: StoredResult
    if "checks" in document:
        result = decoded(document, StoredChecks, path)
    else:
        result = decoded(document, StoredEvaluation, path)
    facts = decoded(result.identity, _Facts, f"{path}: identity")
    if isinstance(result, StoredChecks) and facts.ball is None:
        raise InputError(f"{path} is damaged: its identity has no ball")
    if isinstance(result, StoredEvaluation) and result.source is not None and facts.source is None:
        raise InputError(f"{path} is damaged: its identity has no source")
    return result


@dataclass(frozen=True)
class Blocks:
    """The finished blocks of an evaluation in a folder, one file each; without one none are kept.

    Processes that share the store divide them by leases: the holder of one evaluates that block, or publishes.
    """

    folder: Path | None = None

    def has(self, number: int) -> bool:
        """Whether block ``number`` is finished."""
        path = self._path(number)
        return path is not None and path.is_file()

    @contextmanager
    def evaluating(self, number: int) -> Iterator[None]:
        """The right to evaluate block ``number``; raises ``Busy`` where another process has it."""
        with nullcontext() if self.folder is None else leased(self.folder / f"{number:05d}"):
            yield

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """The right to publish the whole evaluation; raises ``Busy`` where another process has it.

        The blocks go when it is published, and stay where it was interrupted.
        """
        with nullcontext() if self.folder is None else leased(self.folder):
            yield
            self.clear()

    def find(self, number: int) -> Evaluation | None:
        """Block ``number``, where it was finished before; a damaged one is evaluated again."""
        path = self._path(number)
        if path is None or not self.has(number):
            return None
        try:
            columns, facts = load_tensors(path)
            return Evaluation(
                **columns,
                cost=Cost(**facts["cost"]),
                seconds=facts["seconds"],
                notes=tuple(facts["notes"]),
                classes=facts["classes"],
                population=facts["population"],
            )
        except (InputError, KeyError, TypeError) as error:
            log.warning("%s is evaluated again: %s", path, error)
            return None

    def save(self, number: int, block: Evaluation) -> None:
        """Keep a finished block."""
        path = self._path(number)
        if path is None:
            return
        facts = {name: getattr(block, name) for name in ("seconds", "notes", "classes", "population")}
        save_tensors(
            path,
            block.tensors,
            facts | {"cost": asdict(block.cost)},
        )

    def clear(self) -> None:
        """Remove all blocks: the whole evaluation is published."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path | None:
        return None if self.folder is None else self.folder / f"block-{number:05d}.safetensors"
