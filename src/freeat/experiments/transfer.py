"""The transfer matrix source × target over radii and splits; every result is stored and found again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from freeat.attacks.result import Attack
from freeat.evaluation.evaluate import Evaluation, device_and_dtype, joined
from freeat.evaluation.sanity import compare
from freeat.evaluation.transfer import apply_to, weakness
from freeat.experiments.sweep import (
    Condition,
    StartProgress,
    Sweep,
    SweepReport,
    architecture,
    check_distinct,
    check_model,
    gaps,
    no_progress,
    numbered,
    result_folders,
    results_folder,
    with_notes,
)
from freeat.runs.open import Opened
from freeat.runs.results import Making, Results, StoredEvaluation


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
    groups = [(split, group) for split in sweep.splits for group in _on_same_images(targets, sweep, split)]
    rows = (
        (source, group, condition)
        for source in sources
        for split, group in groups
        for condition in sweep.conditions(group[0], split)
    )
    total = len(sources) * len(groups) * len(sweep.attacks) * len(sweep.balls)
    results = [
        result
        for k, (source, group, condition) in enumerate(rows, start=1)
        for result in _row(source, group, sweep, condition, folder, numbered(watch, k, total))
    ]
    found = [
        check
        for model in (_once([*sources, *targets]) if checks else ())
        for check in check_model(model, sweep, Results(results_folder(model, folder)), watch)
    ]
    known = [one for target in targets for one in _white_box(target, sweep, folder)]
    return SweepReport(
        results=tuple(results),
        gaps=tuple(gaps(results)),
        checks=(*found, *compare(results, known=known)),
        stored=result_folders(targets, folder),
    )


def _on_same_images(targets: Sequence[Opened], sweep: Sweep, split: str) -> list[list[Opened]]:
    """The targets in groups that are evaluated on the same images: runs may have been trained on different ones."""
    groups: dict[tuple[bytes, int], list[Opened]] = {}
    for target in targets:
        if split in sweep.splits_of(target):
            images, population = sweep.images(split, target)
            groups.setdefault((images.index.cpu().numpy().tobytes(), population), []).append(target)
    return list(groups.values())


def _row(
    source: Opened,
    targets: Sequence[Opened],
    sweep: Sweep,
    condition: Condition,
    folder: Path | None,
    watch: StartProgress,
) -> list[StoredEvaluation]:
    """One source against targets that are evaluated on the same images, in one split and ball."""
    asked: dict[str, Any] = {
        "split": condition.split,
        "images": condition.images,
        "ball": condition.ball,
        "attack": condition.attack,
        "augment": condition.augment,
    }
    notes = [(*sweep.notes(target, condition.split), *weakness(condition.attack)) for target in targets]
    of_source = {"source": source.digest, "source_architecture": architecture(source)}
    identities = [sweep.identity("transfer", target, **asked) | of_source for target in targets]
    stores = [Results(results_folder(target, folder)) for target in targets]
    found = [
        store.find(identity, StoredEvaluation) for store, identity in zip(stores, identities, strict=True)
    ]
    missing = [i for i, result in enumerate(found) if result is None]
    if missing:
        perturbations = sweep.blocks_identity(sweep.identity("perturb", source, **asked), keep_delta=True)
        with Results(results_folder(source, folder)).blocks(perturbations) as kept:
            blocks = sweep.blocks(source, condition, watch, keep_delta=True, kept=kept)
            made, evaluated = _transferred(blocks, [targets[i] for i in missing], condition, sweep.batch_size)
            spent = made.outcomes()
            making = Making(cost=spent.cost, seconds=spent.seconds, queries=spent.queries)
            for i, evaluation in zip(missing, evaluated, strict=True):
                pair = _pair(source, targets[i], condition.attack)
                result = replace(
                    sweep.stored(identities[i], targets[i], condition, evaluation), making=making, **pair
                )
                found[i] = result = with_notes(result, notes[i])
                stores[i].save(result)
    return [
        replace(with_notes(result, notes[i]), **_pair(source, targets[i], condition.attack))
        for i, result in enumerate(found)
        if result is not None
    ]


def _transferred(
    blocks: Iterable[Evaluation], targets: Sequence[Opened], condition: Condition, batch_size: int
) -> tuple[Evaluation, list[Evaluation]]:
    """What making the perturbations found, and what they do to each target; no perturbation is kept in the end."""
    made: list[Evaluation] = []
    evaluated: list[list[Evaluation]] = [[] for _ in targets]
    done = 0
    for block in blocks:
        images = condition.images.take(torch.arange(done, done + len(block.y)))
        for target, parts in zip(targets, evaluated, strict=True):
            near = images.to(device_and_dtype(target.model)[0])
            parts.append(apply_to(target.model, near, block, condition.ball, batch_size=batch_size))
        made.append(replace(block, delta=None))
        done += len(block.y)
    one, *others = (joined(parts, population=condition.population) for parts in (made, *evaluated))
    return one, others


def _pair(source: Opened, target: Opened, attack: Attack) -> dict[str, Any]:
    own = source.digest == target.digest and architecture(source) == architecture(target)
    return {
        "model": target.name,
        "source": source.name,
        "attack": f"{attack.name} from {source.name}",
        "own": own,
        "black_box": attack.black_box or not own,
    }


def _once(models: Iterable[Opened]) -> list[Opened]:
    """Each model once, by the name it was given last; it may stand on both sides."""
    return list({(model.digest, architecture(model)): model for model in models}.values())


def _white_box(target: Opened, sweep: Sweep, folder: Path | None) -> Iterator[StoredEvaluation]:
    """What is stored of the target under white-box attacks of its own, on the very images of this sweep."""
    store = Results(results_folder(target, folder))
    for split in sweep.splits_of(target):
        images, _ = sweep.images(split, target)
        identity = sweep.identity(
            "evaluation", target, split=split, images=images, ball=sweep.balls[0], attack=None
        )
        same = ("semantics", "kind", "weights", "architecture", "split", "images", "index", "augment")
        for result in store.evaluations(**{name: identity[name] for name in same}):
            if not result.black_box:
                yield replace(result, model=target.name)
