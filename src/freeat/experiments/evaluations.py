"""Runs sweeps: evaluations and transfer matrices. Each result is stored when finished, and reused."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from freeat.attacks.result import Attack
from freeat.compute.machine import provenance
from freeat.errors import InputError
from freeat.evaluation.evaluate import Evaluation, Gap, device_and_dtype, gap, joined, named
from freeat.evaluation.sanity import IMAGES, SanityCheck, compare, sanity_checks
from freeat.evaluation.transfer import apply_to, weakness
from freeat.experiments.blocks import BlockwiseEvaluation, StartProgress, all_found, no_progress, numbered
from freeat.experiments.examples import examples_path, save_examples
from freeat.experiments.sweep import Condition, Sweep, architecture
from freeat.files.documents import check_output
from freeat.runs.open import Opened
from freeat.runs.results import (
    Blocks,
    Identity,
    PerturbationCost,
    Results,
    StoredChecks,
    StoredEvaluation,
    settings_of,
)
from freeat.threat import Ball


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
        stored=tuple(dict.fromkeys(folder for report in reports for folder in report.stored)),
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

    Results go to ``folder``, by default to each model's own folder; a live module has none and stores none.
    With ``examples`` the perturbed images are stored beside them. Without ``checks`` no sanity checks are made.
    """
    check_distinct([model.name for model in models])
    if examples and any(_results_folder(model, folder) is None for model in models):
        raise InputError("adversarial examples need a folder: give one with --out")
    _check_folders(models, folder)
    per_split = len(sweep.attacks) * len(sweep.balls)
    total = per_split * sum(len(sweep.splits_of(model)) for model in models)
    pairs = ((model, condition) for model in models for condition in sweep.conditions(model))
    results = all_found(
        _result(model, sweep, condition, folder, examples, numbered(watch, k, total))
        for k, (model, condition) in enumerate(pairs, start=1)
    )
    found = [*_check_models(models, sweep, folder, watch), *compare(results)] if checks else []
    return SweepReport(
        results=tuple(results),
        gaps=tuple(gaps(results)),
        checks=tuple(found),
        stored=_result_folders(models, folder),
    )


def _result(
    model: Opened,
    sweep: Sweep,
    condition: Condition,
    folder: Path | None,
    examples: bool,
    watch: StartProgress,
) -> Callable[[], StoredEvaluation | None]:
    """The attempt at a model under one condition."""
    store = Results(_results_folder(model, folder))
    identity = sweep.identity("evaluation", model, condition)
    notes = sweep.notes(model, condition.split)
    work = BlockwiseEvaluation(model, sweep, condition, watch, keep_delta=examples)
    kept = store.blocks(_blocks_identity(identity, sweep, keep_delta=examples))

    def file_of(found: StoredEvaluation) -> Path | None:
        return examples_path(store.folder, found) if examples and store.folder is not None else None

    def named(found: StoredEvaluation) -> StoredEvaluation:
        file = file_of(found)
        return replace(
            with_notes(found, notes), model=model.name, examples=None if file is None else str(file)
        )

    def published() -> StoredEvaluation | None:
        found = store.find(identity, StoredEvaluation)
        if found is None or ((file := file_of(found)) is not None and not file.is_file()):
            return None
        return named(found)

    def publish() -> StoredEvaluation:
        evaluation = joined(list(work.blocks(kept)), population=condition.population)
        found = with_notes(_stored(identity, model, sweep, condition, evaluation), notes)
        store.save(found)
        if (file := file_of(found)) is not None:
            save_examples(
                file,
                condition.images,
                evaluation,
                sweep.data.classes,
                seed=sweep.seed,
                augment=condition.augment,
            )
        return named(found)

    def attempt() -> StoredEvaluation | None:
        if (found := published()) is not None:
            kept.clear()  # of a process that was killed after it had published the result
            return found
        if not work.share(kept, lambda: published() is not None):
            return None
        with kept.publishing():
            return published() or publish()

    return attempt


def _check_models(
    models: Iterable[Opened], sweep: Sweep, folder: Path | None, watch: StartProgress
) -> list[SanityCheck]:
    """The sanity checks of the models themselves, at the smallest radius of each norm, 0 only without another.

    They are made once for each model, and stored as its evaluations are.
    """
    smallest_last = sorted(sweep.balls, key=lambda ball: (ball.eps > 0, -ball.eps))
    balls = {ball.norm: ball for ball in smallest_last}.values()
    found = all_found(_checks(model, sweep, ball, folder, watch) for model in models for ball in balls)
    return [check for checks in found for check in checks]


def _checks(
    model: Opened, sweep: Sweep, ball: Ball, folder: Path | None, watch: StartProgress
) -> Callable[[], list[SanityCheck]]:
    """The attempt at the sanity checks of a model in a ball."""
    store = Results(_results_folder(model, folder))
    split = sweep.splits_of(model)[-1]
    images, _ = sweep.images(split, model)
    of_images = sweep.identity_on("sanity", model, split, images)
    identity = {**of_images, "attack": None, **sweep.identity_in(ball)}

    def make() -> StoredChecks:
        progress = watch(f"{model.name}: sanity checks", 1)
        made = sanity_checks(
            model.model,
            images,
            ball,
            classes=len(sweep.data.classes),
            names=sweep.data.classes,
            seed=sweep.seed,
            batch_size=min(sweep.batch_size, IMAGES),
        )
        progress(1)
        found = StoredChecks(identity=identity, checks=tuple(made))
        store.save(found)
        return found

    def attempt() -> list[SanityCheck]:
        found = store.find(identity, StoredChecks)
        if found is None:
            with store.blocks(identity).publishing():
                found = store.find(identity, StoredChecks) or make()
        prefix = f"{model.name} ({type(ball).__name__})"
        return [replace(check, sentence=f"{prefix}: {check.sentence}") for check in found.checks]

    return attempt


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
    """The result with further notes."""
    return replace(result, notes=tuple(dict.fromkeys([*notes, *result.notes])))


def check_distinct(names: Sequence[str]) -> None:
    """Refuse two models of one name: a report could not distinguish them."""
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(
            f"two models are called {sorted(twice)[0]!r}: give them names, as NAME=REFERENCE, to tell them apart"
        )


def _check_folders(models: Sequence[Opened], folder: Path | None) -> None:
    """Refuse folders that results cannot be written to, before anything is evaluated."""
    check_output(*(Path(one) / "result.json" for one in _result_folders(models, folder)))


def _results_folder(model: Opened, folder: Path | None) -> Path | None:
    """The store of a model's results: in the given folder, or the model's own, or none."""
    return model.results if folder is None else folder


def _result_folders(models: Sequence[Opened], folder: Path | None) -> tuple[str, ...]:
    """The folders that hold the results of these models."""
    folders = (_results_folder(model, folder) for model in models)
    return tuple(str(one) for one in dict.fromkeys(folders) if one is not None)


def _blocks_identity(identity: Identity, sweep: Sweep, *, keep_delta: bool) -> Identity:
    """The identity of the blocks of an evaluation: that of the evaluation, block size and content."""
    return identity | {"batch_size": sweep.batch_size, "delta": keep_delta}


def _stored(
    identity: Identity, model: Opened, sweep: Sweep, condition: Condition, evaluation: Evaluation
) -> StoredEvaluation:
    """An evaluation with how and where it was made."""
    attack, ball = condition.attack, condition.ball
    device, _ = device_and_dtype(model.model)
    constant = evaluation.constant_answer
    return StoredEvaluation(
        **vars(evaluation.outcomes()),
        **vars(provenance(device)),
        identity=identity,
        model=model.name,
        weights=model.digest,
        data=sweep.data.name,
        data_digest=sweep.data.digest,
        split=condition.split,
        attack=attack.name,
        black_box=attack.black_box,
        iterate=getattr(attack, "iterate", "worst"),
        settings=settings_of(attack),
        norm=ball.norm,
        eps=ball.eps,
        seed=sweep.seed,
        batch_size=sweep.batch_size,
        device=str(device),
        threads=torch.get_num_threads(),
        constant_class=None if constant is None else sweep.data.classes[constant],
    )


def transfer_models(
    sources: Sequence[Opened],
    targets: Sequence[Opened],
    sweep: Sweep,
    *,
    folder: Path | None = None,
    checks: bool = True,
    watch: StartProgress = no_progress,
) -> SweepReport:
    """The whole matrix, every perturbation computed once and only where a result is missing.

    Targets that were trained on different images are each evaluated on their own, where training images are asked
    for. Where source and target are the same model the result is as white-box as the attack, and is marked ``own``.
    The sanity checks of the models themselves are left out without ``checks``, for models that were checked before.
    """
    check_distinct([model.name for model in sources])
    check_distinct([model.name for model in targets])
    for attack in sweep.attacks:
        weakness(attack)  # refused before anything is evaluated
    _check_folders(targets, folder)
    groups = [(split, group) for split in sweep.splits for group in _on_same_images(targets, sweep, split)]
    conditions = (
        (source, group, condition)
        for source in sources
        for split, group in groups
        for condition in sweep.conditions(group[0], split)
    )
    total = len(sources) * len(groups) * len(sweep.attacks) * len(sweep.balls)
    found = all_found(
        _transfers(source, group, sweep, condition, folder, numbered(watch, k, total))
        for k, (source, group, condition) in enumerate(conditions, start=1)
    )
    results = [result for of_group in found for result in of_group]
    own = _check_models(_once([*sources, *targets]), sweep, folder, watch) if checks else []
    known = [one for target in targets for one in _white_box(target, sweep, folder)]
    return SweepReport(
        results=tuple(results),
        gaps=tuple(gaps(results)),
        checks=(*own, *compare(results, known=known)),
        stored=_result_folders(targets, folder),
    )


def _on_same_images(targets: Sequence[Opened], sweep: Sweep, split: str) -> list[list[Opened]]:
    """The targets in groups that are evaluated on the same images: runs may have been trained on different ones."""
    groups: dict[tuple[bytes, int], list[Opened]] = {}
    for target in targets:
        if split in sweep.splits_of(target):
            images, population = sweep.images(split, target)
            groups.setdefault((images.index.cpu().numpy().tobytes(), population), []).append(target)
    return list(groups.values())


def _transfers(
    source: Opened,
    targets: Sequence[Opened],
    sweep: Sweep,
    condition: Condition,
    folder: Path | None,
    watch: StartProgress,
) -> Callable[[], list[StoredEvaluation] | None]:
    """The attempt at one source against targets that are evaluated on the same images, in one split and ball."""
    notes = [(*sweep.notes(target, condition.split), *weakness(condition.attack)) for target in targets]
    of_source = {"source": source.digest, "source_architecture": architecture(source)}
    if condition.augment is not None:  # results without this are of the plain images
        of_source["view"] = "of the perturbations"
    identities = [sweep.identity("transfer", target, condition) | of_source for target in targets]
    stores = [Results(_results_folder(target, folder)) for target in targets]
    work = BlockwiseEvaluation(source, sweep, condition, watch, keep_delta=True)
    perturbations = _blocks_identity(sweep.identity("perturb", source, condition), sweep, keep_delta=True)
    kept = Results(_results_folder(source, folder)).blocks(perturbations)

    def published() -> dict[int, StoredEvaluation]:
        found = (store.find(one, StoredEvaluation) for store, one in zip(stores, identities, strict=True))
        return {i: result for i, result in enumerate(found) if result is not None}

    def publish(missing: list[int]) -> dict[int, StoredEvaluation]:
        others = [targets[i] for i in missing]
        made, evaluated = _transferred(work, kept, others)
        spent = made.outcomes()
        on_source = PerturbationCost(cost=spent.cost, seconds=spent.seconds, queries=spent.queries)
        results: dict[int, StoredEvaluation] = {}
        for i, evaluation in zip(missing, evaluated, strict=True):
            stored = _stored(identities[i], targets[i], sweep, condition, evaluation)
            result = _of_pair(stored, source, targets[i], condition.attack)
            results[i] = with_notes(replace(result, perturbation_cost=on_source), notes[i])
            stores[i].save(results[i])
        return results

    def attempt() -> list[StoredEvaluation] | None:
        found = published()
        if len(found) < len(targets):
            if not work.share(kept, lambda: len(published()) == len(targets)):
                return None
            with kept.publishing():
                found = published()
                if missing := [i for i in range(len(targets)) if i not in found]:
                    found |= publish(missing)
        results = [
            _of_pair(with_notes(found[i], notes[i]), source, target, condition.attack)
            for i, target in enumerate(targets)
        ]
        for i, result in enumerate(results):
            if (result.model, result.source) != (found[i].model, found[i].source):
                stores[i].save(result)  # reports read the names from the store
        return results

    return attempt


def _transferred(
    work: BlockwiseEvaluation, kept: Blocks, targets: Sequence[Opened]
) -> tuple[Evaluation, list[Evaluation]]:
    """Evaluations of the source and of each target under its perturbations, which are not kept."""
    made: list[Evaluation] = []
    evaluated: list[list[Evaluation]] = [[] for _ in targets]
    ball = work.condition.ball
    apply = partial(apply_to, seed=work.sweep.seed, augment=work.augment, batch_size=work.sweep.batch_size)
    with closing(work.images(range(len(work.firsts)))) as read:
        for block, (_, images) in zip(work.blocks(kept), read, strict=True):
            for target, parts in zip(targets, evaluated, strict=True):
                near = images.to(device_and_dtype(target.model)[0])
                with named(target.name):
                    parts.append(apply(target.model, near, block, ball))
            made.append(replace(block, delta=None))
    one, *others = (joined(parts, population=work.condition.population) for parts in (made, *evaluated))
    return one, others


def _of_pair(result: StoredEvaluation, source: Opened, target: Opened, attack: Attack) -> StoredEvaluation:
    """The result as that of a target under perturbations made on a source, by the names they have here."""
    own = source.digest == target.digest and architecture(source) == architecture(target)
    return replace(
        result,
        model=target.name,
        source=source.name,
        attack=f"{attack.name} from {source.name}",
        own=own,
        black_box=attack.black_box or not own,
    )


def _once(models: Iterable[Opened]) -> list[Opened]:
    """Each model once, by its last name; a model may be source and target."""
    return list({(model.digest, architecture(model)): model for model in models}.values())


def _white_box(target: Opened, sweep: Sweep, folder: Path | None) -> Iterator[StoredEvaluation]:
    """Stored results of the target under white-box attacks, on the same images as this sweep."""
    store = Results(_results_folder(target, folder))
    for split in sweep.splits_of(target):
        images, _ = sweep.images(split, target)
        for result in store.evaluations(**sweep.identity_on("evaluation", target, split, images)):
            if not result.black_box:
                yield replace(result, model=target.name)
