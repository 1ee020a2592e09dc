"""Sweeps: models under attacks, over radii and splits; every result is stored as it is finished and found again."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from freeat.attacks.autoattack import AutoAttack
from freeat.attacks.result import Attack
from freeat.compute.machine import provenance
from freeat.data import Augmentation, DataSet, Images, parse_augmentation
from freeat.errors import InputError, unknown_name
from freeat.evaluation.evaluate import (
    BATCH,
    Evaluation,
    Gap,
    Progress,
    device_and_dtype,
    evaluate,
    gap,
    joined,
)
from freeat.evaluation.sanity import IMAGES, SanityCheck, compare, sanity_checks
from freeat.experiments.examples import examples_path, save_examples
from freeat.runs.build import build_images, evaluation_attack
from freeat.runs.open import Opened
from freeat.runs.results import (
    SEMANTICS,
    Blocks,
    Identity,
    Results,
    StoredChecks,
    StoredEvaluation,
    attack_identity,
    settings_of,
)
from freeat.runs.spec import EvalSpec
from freeat.threat import Ball, make_ball
from freeat.training.checks import out_of_memory

StartProgress = Callable[[str, int], Progress]
"""Receives a title and a number of images, and returns what counts them."""
SPLITS = ("train", "train_augmented", "test", "validation")
OTHER_DATA = (
    "evaluate it on others with `freeat evaluate --data`: its test images may have become training images"
)
BLOCK = 256
"""Images after which an evaluation is saved, as long as it has more."""


def numbered(watch: StartProgress, k: int, total: int) -> StartProgress:
    """The same, with the number of the evaluation and how many there are."""
    return lambda title, images: watch(f"[{k}/{total}] {title}" if total > 1 else title, images)


def no_progress(title: str, images: int) -> Progress:
    """No progress is shown."""
    return lambda done: None


@dataclass(frozen=True, kw_only=True, eq=False)
class Condition:
    """One attack in one ball on images of one split, which has ``population`` of them."""

    split: str
    images: Images
    population: int
    augment: Augmentation | None
    attack: Attack
    ball: Ball

    def title(self, model: str) -> str:
        """A line for the progress."""
        return f"{model}: {self.attack.name}, {self.ball.norm} ε = {self.ball.eps:.4g}, {self.split}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep:
    """What every model goes through: each attack in each ball, on ``n`` images (None: all) of each split.

    These are the first n, or with ``nested`` the random subset by which a run is evaluated in training. The training
    images of a run are those it was trained on, not all that its data set has. ``train_augmented`` is the view of them
    that it was trained on; it and ``validation`` are left out of models that have none. ``with_loss`` and ``recheck``
    are those of ``evaluate``.
    """

    data: DataSet
    attacks: tuple[Attack, ...]
    balls: tuple[Ball, ...]
    splits: tuple[str, ...] = ("test",)
    n: int | None = None
    nested: bool = False
    seed: int = 0
    batch_size: int = BATCH
    with_loss: bool = False
    recheck: bool = True

    def __post_init__(self) -> None:
        for split in self.splits:
            if split not in SPLITS:
                raise unknown_name("split", split, SPLITS)
        if self.n is not None and self.n < 1:
            raise InputError(f"-n {self.n}: evaluate at least 1 image")
        if self.batch_size < 1:
            raise InputError(f"batch size {self.batch_size}: must be at least 1")
        for ball in self.balls:
            ball.check(self.data.shape)

    def splits_of(self, model: Opened) -> tuple[str, ...]:
        """The splits on which a model can be evaluated."""
        lacking = set()
        if self._augmentation(model) is None:
            lacking.add("train_augmented")
        if not (self._is_own_data(model) and model.spec is not None and model.spec.validation):
            lacking.add("validation")
        return tuple(split for split in self.splits if split not in lacking)

    def images(self, split: str, model: Opened) -> tuple[Images, int]:
        """The images of a split on which a model is evaluated, and how many the split has."""
        whole = self._whole(split, model)
        if self.n is None or self.n >= len(whole):
            return whole, len(whole)
        return whole.subset(self.n) if self.nested else whole.take(torch.arange(self.n)), len(whole)

    def _whole(self, split: str, model: Opened) -> Images:
        if split == "test":
            return self.data.test
        if model.spec is None or not self._is_own_data(model):
            return self.data.train
        train, validation = build_images(model.spec, self.data)
        return validation if split == "validation" and validation is not None else train

    def _is_own_data(self, model: Opened) -> bool:
        return model.trained_on == self.data.digest

    def _augmentation(self, model: Opened) -> Augmentation | None:
        if model.spec is None or not self._is_own_data(model):
            return None
        return parse_augmentation(model.spec.augment, self.data.augment)

    def notes(self, model: Opened, split: str) -> tuple[str, ...]:
        """What a report of this model must say about its images of a split."""
        if model.trained_on is not None and not self._is_own_data(model):
            return (*self.data.notes, f"{model.name} was trained on other data than {self.data.name}.")
        if split == "train" and model.spec is None:
            unknown = f"Which images {model.name} was trained on is not known: all training images are taken for it."
            return (*self.data.notes, unknown)
        return self.data.notes

    def conditions(self, model: Opened, *splits: str) -> Iterator[Condition]:
        """Every split (or those named), attack and radius in turn."""
        for split in splits or self.splits_of(model):
            images, population = self.images(split, model)
            augment = self._augmentation(model) if split == "train_augmented" else None
            for attack in self.attacks:
                for ball in self.balls:
                    yield Condition(
                        split=split,
                        images=images,
                        population=population,
                        augment=augment,
                        attack=attack,
                        ball=ball,
                    )

    def blocks(
        self, model: Opened, condition: Condition, watch: StartProgress, *, keep_delta: bool, kept: Blocks
    ) -> Iterator[Evaluation]:
        """A model under one condition, block by block in the order of the images; kept ones are found."""
        total = len(condition.images)
        progress = watch(condition.title(model.name), total)
        size = self.batch_size * max(1, BLOCK // self.batch_size)
        for number, first in enumerate(range(0, total, size)):
            block = kept.find(number)
            if block is not None:
                progress(len(block.y))
            else:
                rows = torch.arange(first, min(first + size, total))
                block = self._evaluated(model, condition, rows, progress, keep_delta=keep_delta)
                if total > size:
                    kept.save(number, block)
            yield block

    def _evaluated(
        self, model: Opened, condition: Condition, rows: torch.Tensor, progress: Progress, *, keep_delta: bool
    ) -> Evaluation:
        try:
            return evaluate(
                model.model,
                condition.images.take(rows).to(device_and_dtype(model.model)[0]),
                condition.attack,
                condition.ball,
                classes=len(self.data.classes),
                seed=self.seed,
                augment=condition.augment,
                batch_size=self.batch_size,
                with_loss=self.with_loss,
                recheck=self.recheck,
                keep_delta=keep_delta,
                progress=progress,
            )
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            at_once = min(self.batch_size, len(rows))
            raise InputError(
                f"out of memory with {at_once} images at a time: use a smaller --batch-size, e.g. "
                f"{max(1, at_once // 2)}; what is finished is kept"
            ) from error

    def blocks_identity(self, identity: Identity, *, keep_delta: bool) -> Identity:
        """What the blocks of an evaluation depend on: also on how they are cut, and what they hold."""
        return identity | {"batch_size": self.batch_size, "delta": keep_delta}

    def identity(
        self,
        kind: str,
        model: Opened,
        *,
        split: str,
        images: Images,
        ball: Ball,
        attack: Attack | None,
        augment: Augmentation | None = None,
    ) -> Identity:
        """All that a result depends on."""
        identity = {
            "semantics": SEMANTICS,
            "kind": kind,
            "weights": model.digest,
            "architecture": architecture(model),
            "split": split,
            "images": images.digest,
            "index": _index_digest(images),
            "augment": None if augment is None else {"name": type(augment).__name__, **settings_of(augment)},
            "attack": None if attack is None else attack_identity(attack),
            "ball": {"norm": ball.norm, **settings_of(ball)},
            "seed": self.seed,
            "with_loss": self.with_loss,
        }
        if isinstance(attack, AutoAttack):  # it draws for whole batches
            identity |= {"package": attack.package, "batch_size": self.batch_size}
        return identity

    def stored(
        self, identity: Identity, model: Opened, condition: Condition, evaluation: Evaluation
    ) -> StoredEvaluation:
        """An evaluation with how and where it was made."""
        attack, ball = condition.attack, condition.ball
        device, _ = device_and_dtype(model.model)
        return StoredEvaluation(
            **vars(evaluation.outcomes()),
            **vars(provenance(device)),
            identity=identity,
            model=model.name,
            weights=model.digest,
            data=self.data.name,
            data_digest=self.data.digest,
            split=condition.split,
            attack=attack.name,
            black_box=attack.black_box,
            iterate=getattr(attack, "iterate", "worst"),
            settings=settings_of(attack),
            norm=ball.norm,
            eps=ball.eps,
            seed=self.seed,
            batch_size=self.batch_size,
            device=str(device),
            threads=torch.get_num_threads(),
        )


@dataclass(frozen=True, kw_only=True)
class ModelGap(Gap):
    """Training minus test robust accuracy of a model under an attack, and the same of its clean accuracy."""

    model: str
    attack: str
    norm: str
    eps: float
    clean: Gap


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """The results of a sweep, the gaps between splits, the sanity checks, and the folders that hold the results."""

    results: tuple[StoredEvaluation, ...]
    gaps: tuple[ModelGap, ...]
    checks: tuple[SanityCheck, ...]
    stored: tuple[str, ...]


def merged_reports(reports: Sequence[SweepReport]) -> SweepReport:
    """Several reports as one."""
    return SweepReport(
        results=tuple(result for report in reports for result in report.results),
        gaps=tuple(one for report in reports for one in report.gaps),
        checks=tuple(check for report in reports for check in report.checks),
        stored=tuple(dict.fromkeys(place for report in reports for place in report.stored)),
    )


def evaluate_models(
    models: Sequence[Opened],
    sweep: Sweep,
    *,
    folder: Path | None = None,
    examples: bool = False,
    checks: bool = True,
    watch: StartProgress = no_progress,
) -> SweepReport:
    """Every model under every condition; results that are stored already are not computed again.

    Results go to ``folder``, by default to each model's own place; a live module has none and stores none.
    With ``examples`` the perturbed images are stored beside them. Without ``checks`` no sanity checks are made.
    """
    check_distinct([model.name for model in models])
    if examples and any(results_folder(model, folder) is None for model in models):
        raise InputError("adversarial examples need a place: give a folder (--out)")
    results: list[StoredEvaluation] = []
    found: list[SanityCheck] = []
    per_split = len(sweep.attacks) * len(sweep.balls)
    total = per_split * sum(len(sweep.splits_of(model)) for model in models)
    for model in models:
        store = Results(results_folder(model, folder))
        for condition in sweep.conditions(model):
            watched = numbered(watch, len(results) + 1, total)
            results.append(_result(model, sweep, condition, store, examples, watched))
        found += check_model(model, sweep, store, watch) if checks else ()
    found += compare(results) if checks else ()
    return SweepReport(
        results=tuple(results),
        gaps=tuple(gaps(results)),
        checks=tuple(found),
        stored=result_folders(models, folder),
    )


def _result(
    model: Opened, sweep: Sweep, condition: Condition, store: Results, examples: bool, watch: StartProgress
) -> StoredEvaluation:
    identity = sweep.identity(
        "evaluation",
        model,
        split=condition.split,
        images=condition.images,
        ball=condition.ball,
        attack=condition.attack,
        augment=condition.augment,
    )
    notes = sweep.notes(model, condition.split)
    found = store.find(identity, StoredEvaluation)
    file = examples_path(store.folder, found) if found and examples and store.folder else None
    if found is None or (file is not None and not file.is_file()):
        with store.blocks(sweep.blocks_identity(identity, keep_delta=examples)) as kept:
            blocks = sweep.blocks(model, condition, watch, keep_delta=examples, kept=kept)
            evaluation = joined(list(blocks), population=condition.population)
            found = with_notes(sweep.stored(identity, model, condition, evaluation), notes)
            store.save(found)
            if examples and store.folder is not None:
                file = examples_path(store.folder, found)
                save_examples(file, condition.images, evaluation, sweep.data.classes)
    return replace(with_notes(found, notes), model=model.name, examples=None if file is None else str(file))


def check_model(model: Opened, sweep: Sweep, store: Results, watch: StartProgress) -> list[SanityCheck]:
    """The sanity checks of the model itself, at the smallest radius of each norm, 0 only where there is no other.

    They are made once for each model, and stored as its evaluations are.
    """
    split = sweep.splits_of(model)[-1]
    images, _ = sweep.images(split, model)
    smallest_last = sorted(sweep.balls, key=lambda ball: (ball.eps > 0, -ball.eps))
    checks: list[SanityCheck] = []
    for ball in {ball.norm: ball for ball in smallest_last}.values():
        identity = sweep.identity("sanity", model, split=split, images=images, ball=ball, attack=None)
        found = store.find(identity, StoredChecks)
        if found is None:
            progress = watch(f"{model.name}: sanity checks", 1)
            made = sanity_checks(
                model.model,
                images,
                ball,
                classes=len(sweep.data.classes),
                seed=sweep.seed,
                batch_size=min(sweep.batch_size, IMAGES),
            )
            progress(1)
            found = StoredChecks(identity=identity, checks=tuple(made))
            store.save(found)
        said = f"{model.name} ({type(ball).__name__})"
        checks += [replace(check, sentence=f"{said}: {check.sentence}") for check in found.checks]
    return checks


def as_trained(model: Opened, data: DataSet, evaluation: EvalSpec) -> Sweep:
    """The sweep that evaluates a run as its training did: its own attack and radius, every split, with losses."""
    assert model.spec is not None  # of a run
    eps = model.spec.eps if evaluation.eval_eps is None else evaluation.eval_eps
    return Sweep(
        data=data,
        attacks=(evaluation_attack(evaluation),),
        balls=(make_ball(model.spec.norm, eps),),
        splits=SPLITS,
        n=evaluation.final_size,
        nested=True,
        seed=model.spec.seed,
        with_loss=True,
        recheck=False,  # the attack of a training run decides in fp32 itself
    )


def gaps(results: Sequence[StoredEvaluation]) -> Iterator[ModelGap]:
    """Training minus test accuracy of everything that was evaluated on both splits."""

    def of_split(split: str) -> dict[tuple[str, str, str, float], StoredEvaluation]:
        return {(one.model, one.attack, one.norm, one.eps): one for one in results if one.split == split}

    tests = of_split("test")
    for key, train in of_split("train").items():
        if key in tests:
            robust, clean = gap(train, tests[key]), gap(train, tests[key], "clean_accuracy")
            model, attack, norm, eps = key
            yield ModelGap(**vars(robust), clean=clean, model=model, attack=attack, norm=norm, eps=eps)


def with_notes(result: StoredEvaluation, notes: Sequence[str]) -> StoredEvaluation:
    """The result with what a report of it must say besides what it says itself."""
    return replace(result, notes=tuple(dict.fromkeys([*notes, *result.notes])))


def architecture(model: Opened) -> str:
    """A digest of the model's layers as torch prints them and of what made them.

    The same weights in other layers are another model, and a factory's arguments need not show in its layers.
    """
    return hashlib.sha256(f"{model.model!r}{model.made_by}".encode()).hexdigest()


def check_distinct(names: Sequence[str]) -> None:
    """Refuse two models of one name: a report could not tell them apart."""
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(
            f"two models are called {sorted(twice)[0]!r}: give them names, as NAME=REFERENCE, to tell them apart"
        )


def results_folder(model: Opened, folder: Path | None) -> Path | None:
    """Where a model's results go: the folder asked for, or the model's own place, or nowhere."""
    return model.results if folder is None else folder


def result_folders(models: Sequence[Opened], folder: Path | None) -> tuple[str, ...]:
    """Where the results of these models went."""
    places = (results_folder(model, folder) for model in models)
    return tuple(str(place) for place in dict.fromkeys(places) if place is not None)


def _index_digest(images: Images) -> str:
    """A digest of which images of their split these are."""
    return hashlib.sha256(images.index.cpu().numpy().tobytes()).hexdigest()
