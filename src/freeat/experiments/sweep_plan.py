"""What a campaign measures: attacks, radii and splits for every model, and what identifies each cell."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from freeat.attacks.autoattack import AutoAttack
from freeat.attacks.result import Attack
from freeat.compute.machine import provenance
from freeat.data import DataSet, Images
from freeat.errors import InputError, unknown_name
from freeat.evaluation.evaluate import (
    BATCH,
    Evaluation,
    Progress,
    Summary,
    device_and_dtype,
    evaluate,
    gap,
    joined,
)
from freeat.files.documents import decoded, plain
from freeat.runs.build import build_images
from freeat.runs.open import Opened
from freeat.runs.results import Cells
from freeat.runs.unfinished import EVERY, NOWHERE, Unfinished
from freeat.threat import Ball
from freeat.training.checks import out_of_memory

Cell = dict[str, Any]
Watch = Callable[[str, int], Progress]  # a title and a number of images, to what counts them
SPLITS = ("train", "test")


def numbered(watch: Watch, k: int, total: int) -> Watch:
    """The same, told which cell of how many it is."""
    return lambda title, images: watch(f"[{k}/{total}] {title}" if total > 1 else title, images)


def unwatched(title: str, images: int) -> Progress:
    """Nobody looks on."""
    return lambda done: None


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One attack in one ball on images of one split, which has ``population`` of them."""

    split: str
    images: Images
    population: int
    attack: Attack
    ball: Ball

    def title(self, model: str) -> str:
        """A line for whoever watches."""
        return f"{model}: {self.attack.name}, {self.ball.norm} ε = {self.ball.eps:.4g}, {self.split}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What every model of a campaign goes through, on the first ``n`` images (None: all) of each split.

    The training images of a run are those it was trained on, not all that its data set has.
    """

    data: DataSet
    attacks: tuple[Attack, ...]
    balls: tuple[Ball, ...]
    splits: tuple[str, ...] = ("test",)
    n: int | None = None
    seed: int = 0
    batch_size: int = BATCH

    def __post_init__(self) -> None:
        for split in self.splits:
            if split not in SPLITS:
                raise unknown_name("split", split, SPLITS)
        if self.n is not None and self.n < 1:
            raise InputError(f"-n {self.n}: judge at least 1 image")
        if self.batch_size < 1:
            raise InputError(f"batch size {self.batch_size}: must be at least 1")
        for ball in self.balls:
            ball.check(self.data.shape)

    def images(self, split: str, model: Opened) -> tuple[Images, int]:
        """The images of a split that a model is judged on, and how many the split has."""
        whole = self._trained_on(model) if split == "train" else self.data.test
        first = whole if self.n is None or self.n >= len(whole) else whole.take(torch.arange(self.n))
        return first, len(whole)

    def _trained_on(self, model: Opened) -> Images:
        if model.spec is None or model.trained_on != self.data.digest:
            return self.data.train
        return build_images(model.spec, self.data)[0]

    def notes(self, model: Opened, split: str) -> tuple[str, ...]:
        """What a report of this model must say about its images of a split."""
        if model.trained_on not in (None, self.data.digest):
            return (*self.data.notes, f"{model.name} was trained on other data than {self.data.name}.")
        if split == "train" and model.spec is None:
            unknown = f"Which images {model.name} was trained on is not known: all training images are taken for it."
            return (*self.data.notes, unknown)
        return self.data.notes

    @property
    def size(self) -> int:
        """How many trials a model goes through."""
        return len(self.splits) * len(self.attacks) * len(self.balls)

    def trials(self, model: Opened, *splits: str) -> Iterator[Trial]:
        """Every split (or those named), attack and radius in turn."""
        for split in splits or self.splits:
            images, population = self.images(split, model)
            for attack in self.attacks:
                for ball in self.balls:
                    yield Trial(split=split, images=images, population=population, attack=attack, ball=ball)

    def measure(
        self,
        model: Opened,
        trial: Trial,
        watch: Watch,
        *,
        keep_delta: bool,
        unfinished: Unfinished = NOWHERE,
    ) -> Evaluation:
        """A model under one trial."""
        parts = self.parts(model, trial, watch, keep_delta=keep_delta, unfinished=unfinished)
        return joined(list(parts), population=trial.population)

    def parts(
        self, model: Opened, trial: Trial, watch: Watch, *, keep_delta: bool, unfinished: Unfinished = NOWHERE
    ) -> Iterator[Evaluation]:
        """A model under one trial, part by part in the order of the images; what is kept as ``unfinished`` is found."""
        progress = watch(trial.title(model.name), len(trial.images))
        done = kept = 0
        for part in unfinished.parts(trial.images.index):
            done, kept = done + len(part.y), kept + 1
            progress(len(part.y))
            yield part
        fresh: list[Evaluation] = []
        kept_at = time.monotonic()
        for first in range(done, len(trial.images), self.batch_size):
            images = trial.images.take(torch.arange(first, min(first + self.batch_size, len(trial.images))))
            try:
                part = self._measured(model, images, trial, progress, keep_delta=keep_delta)
            except KeyboardInterrupt:
                if fresh:
                    unfinished.add(kept, joined(fresh))
                raise
            if unfinished.keeps:
                fresh.append(part)
                if time.monotonic() - kept_at >= EVERY:
                    unfinished.add(kept, joined(fresh))
                    fresh, kept, kept_at = [], kept + 1, time.monotonic()
            yield part

    def _measured(
        self, model: Opened, images: Images, trial: Trial, progress: Progress, *, keep_delta: bool
    ) -> Evaluation:
        try:
            return evaluate(
                model.model,
                images.to(device_and_dtype(model.model)[0]),
                trial.attack,
                trial.ball,
                classes=len(self.data.classes),
                seed=self.seed,
                batch_size=self.batch_size,
                progress=progress,
                keep_delta=keep_delta,
            )
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise InputError(
                f"out of memory with {len(images)} images at a time: use a smaller --batch-size, e.g. "
                f"{max(1, len(images) // 2)}; what is finished is kept"
            ) from error

    def unfinished(self, store: Cells, key: Mapping[str, Any], *, keep_delta: bool) -> Unfinished:
        """Where the finished batches of a cell are kept until it is published."""
        return Unfinished(store.parts({**key, "batch_size": self.batch_size, "delta": keep_delta}))

    def identity(
        self, kind: str, model: Opened, *, split: str, images: Images, ball: Ball, attack: Attack | None
    ) -> dict[str, Any]:
        """All that a measurement depends on."""
        key = {
            "kind": kind,
            "weights": model.digest,
            "architecture": architecture(model),
            "split": split,
            "images": images.digest,
            "index": _numbers(images),
            "attack": None if attack is None else repr(attack),
            "ball": repr(ball),
            "seed": self.seed,
        }
        if getattr(attack, "precision", "fp32") != "fp32":
            key["judged"] = "all"  # older cells of such attacks were judged where the attack claimed only
        if isinstance(attack, AutoAttack):  # it draws for whole batches
            key |= {"package": attack.package, "batch_size": self.batch_size}
        return key

    def facts(self, model: Opened, trial: Trial) -> Cell:
        """What a cell says about itself besides its result."""
        attack, ball = trial.attack, trial.ball
        device, _ = device_and_dtype(model.model)
        return {
            "model": model.name,
            "weights": model.digest,
            "data": self.data.name,
            "data_digest": self.data.digest,
            "split": trial.split,
            "attack": attack.name,
            "iterate": getattr(attack, "iterate", "worst"),
            "settings": asdict(attack) if is_dataclass(attack) else {},
            "black_box": attack.black_box,
            "norm": ball.norm,
            "eps": ball.eps,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "device": str(device),
            "threads": torch.get_num_threads(),
            **_provenance(device),
        }


@cache
def _provenance(device: torch.device) -> dict[str, Any]:
    """Asked for once: a campaign has many cells, and git takes its time."""
    return provenance(device)


def _numbers(images: Images) -> str:
    """A digest of which images of their split these are."""
    return hashlib.sha256(images.index.cpu().numpy().tobytes()).hexdigest()


def alike(models: Sequence[Opened], plan: Plan, split: str) -> list[list[Opened]]:
    """The models in groups that are judged on the same images: runs may have been trained on different ones."""
    groups: dict[tuple[str, int], list[Opened]] = {}
    for model in models:
        images, population = plan.images(split, model)
        groups.setdefault((_numbers(images), population), []).append(model)
    return list(groups.values())


def noted(cell: Cell, notes: Sequence[str]) -> Cell:
    """The cell with what a report of it must say besides what it says itself."""
    return cell | {"notes": list(dict.fromkeys([*notes, *cell["notes"]]))}


def architecture(model: Opened) -> str:
    """A digest of the model's layers and of what made them: the same weights in other layers are another model, and
    what a factory was told need not show in its layers."""
    return hashlib.sha256(f"{model.model!r}{model.made_by}".encode()).hexdigest()


def same_model(one: Opened, other: Opened) -> bool:
    """Whether two have the same weights in the same layers."""
    return one.digest == other.digest and architecture(one) == architecture(other)


def gaps(cells: Sequence[Cell]) -> list[Cell]:
    """Training minus test robust accuracy of everything that was measured on both splits."""
    keys = ("model", "attack", "norm", "eps")
    tests = {tuple(cell[key] for key in keys): cell for cell in cells if cell["split"] == "test"}
    trains = {tuple(cell[key] for key in keys): cell for cell in cells if cell["split"] == "train"}
    return [
        dict(zip(keys, key, strict=True))
        | plain(gap(decoded(train, Summary, ""), decoded(tests[key], Summary, "")))
        for key, train in trains.items()
        if key in tests
    ]


def check_distinct(models: Sequence[Opened]) -> None:
    """Refuse two models of one name: a report could not tell them apart."""
    names = [model.name for model in models]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(
            f"two models are called {sorted(twice)[0]!r}: give them names, as NAME=REFERENCE, to tell them apart"
        )


def home_of(model: Opened, folder: Path | None) -> Path | None:
    """Where a model's results go: the folder asked for, or the model's own place, or nowhere."""
    return model.home if folder is None else folder


def homes(models: Sequence[Opened], folder: Path | None) -> list[str]:
    """Where the results of these models went."""
    places = (home_of(model, folder) for model in models)
    return [str(place) for place in dict.fromkeys(places) if place is not None]
