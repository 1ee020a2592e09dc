"""RobustBench's functions ``load_model`` and ``benchmark``, and the claim of a model for its leaderboard."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from freeat.attacks.registry import parse_attack
from freeat.compute.machine import arithmetic
from freeat.data import load_data
from freeat.data.catalogue import find_source
from freeat.errors import InputError
from freeat.experiments.evaluations import evaluate_models
from freeat.experiments.sweep import Sweep
from freeat.files.documents import in_file_name, write_document
from freeat.models import check_logits
from freeat.runs.open import Manifest, file_model, laid_out_for_evaluation, open_model, stored_model
from freeat.threat import make_ball
from freeat.units import parse_radius, radius_text

log = logging.getLogger(__name__)

STANDARD_EPS = {"linf": "8/255", "l2": "0.5"}


def load_model(
    model_name: str | Path,
    model_dir: str | Path | None = None,
    dataset: str | Path = "cifar10",
    threat_model: str = "Linf",
    *,
    model_args: Mapping[str, object] | None = None,
    normalize: str | None = None,
    trust_code: bool = False,
) -> nn.Module:
    """The model behind a reference (a run folder, NETWORK@FILE, package.module:factory@FILE), in evaluation mode.

    ``dataset`` gives the shape of images and the classes of a model from a weights file; a data set known by name need
    not be on disk. A run or exported folder has its own. ``model_dir`` and ``threat_model`` are accepted for
    compatibility and have no effect: a reference is complete.
    """
    stored = stored_model(model_name, trust_code=trust_code)
    if stored is not None:
        return laid_out_for_evaluation(stored)
    shape, classes = _images_of(dataset)
    model = file_model(
        model_name,
        classes=classes,
        shape=shape,
        args=model_args,
        normalize=normalize,
        trust_code=trust_code,
    )
    check_logits(model, shape, classes, torch.device("cpu"))
    return model


def benchmark(
    model: nn.Module,
    n_examples: int = 10_000,
    dataset: str | Path = "cifar10",
    threat_model: str = "Linf",
    eps: float | str | None = None,
    device: torch.device | str | None = None,
    *,
    to_disk: bool = False,
    model_name: str | None = None,
    data_dir: Path | str | None = None,
    batch_size: int = 256,
    attack: str = "autoattack",
    seed: int = 0,
    deterministic: bool = True,
) -> tuple[float, float]:
    """(clean accuracy, robust accuracy) on ``n_examples`` test images, by AutoAttack or another ``attack``.

    They are ``Images.sample``, as everywhere in freeat; RobustBench takes the first ones. All images are the same ones.

    ``eps`` is in pixel space; by default 8/255 (Linf) or 0.5 (L2). The model is moved to ``device``, if one is
    given. Sanity checks that fail are logged as warnings. With ``to_disk`` the result is also written to
    ``model_info/DATASET/THREAT_MODEL/MODEL_NAME.json``. With ``deterministic=False`` torch may choose faster
    algorithms whose bits vary.
    """
    if n_examples < 1:
        raise InputError(f"n_examples={n_examples}: evaluate at least 1 image")
    if to_disk and model_name is None:
        raise InputError("to_disk=True needs a model_name, which names the file")
    data = load_data(dataset, data_dir=data_dir)
    radius = STANDARD_EPS.get(threat_model.lower(), 0.0) if eps is None else eps
    ball = make_ball(threat_model, parse_radius(radius))
    sweep = Sweep(
        data=data,
        attacks=(parse_attack(attack),),
        balls=(ball,),
        n=n_examples,
        seed=seed,
        batch_size=batch_size,
    )
    opened = open_model(model, data, device=device, name=model_name)
    with arithmetic(threads=torch.get_num_threads(), deterministic=deterministic):
        report = evaluate_models([opened], sweep, checks=ball.eps > 0)
    (result,) = report.results
    for check in report.checks:
        if not check.passed:
            log.warning("%s", check.sentence)
    for note in result.notes:
        log.info("%s: %s", opened.name, note)
    if to_disk:
        folder = Path("model_info") / data.name / type(ball).__name__
        write_document(folder / f"{in_file_name(opened.name)}.json", "evaluation", result)
    return result.clean_accuracy, result.robust_accuracy


def _images_of(dataset: str | Path) -> tuple[tuple[int, int, int], int]:
    """The shape of a data set's images and the number of its classes, from disk only where it has no known name."""
    source = find_source(str(dataset))
    if source is not None:
        return source.shape, source.n_classes
    data = load_data(dataset)
    return data.shape, len(data.classes)


LEADERBOARDS = ("cifar10", "cifar100", "imagenet")
"""The data sets of RobustBench's leaderboards."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A model as RobustBench's ``model_info`` describes it; what freeat cannot know is empty.

    Accuracies are texts in percent. ``reported`` is the lowest robust accuracy of all evaluations at the radius of
    training, ``autoattack_acc`` that of AutoAttack there, None where it was not run on all test images.
    """

    link: str = ""
    name: str = ""
    authors: str = ""
    additional_data: bool = False
    number_forward_passes: int = 1
    dataset: str
    venue: str = ""
    architecture: str
    eps: str
    clean_acc: str
    reported: str
    autoattack_acc: str | None


def robustbench_claim(manifest: Manifest) -> tuple[Claim, str]:
    """The claim of an exported model, and the text to paste into RobustBench's form for new models."""
    spec, scores = manifest.run.resolved, manifest.scores
    at_radius = [one for one in manifest.further if (one.norm, one.eps) == (spec.norm, spec.eps)]
    whole = [one for one in at_radius if one.attack == "autoattack" and one.n == one.population]
    robust = [one.robust_accuracy for one in at_radius if one.n == one.population]
    if (scores.norm, scores.eps) == (spec.norm, spec.eps):
        robust.append(scores.test.robust_accuracy)
    if not robust:
        raise InputError(
            f"{manifest.name} was evaluated at {scores.norm} ε = {radius_text(scores.eps)} only: evaluate it at the "
            f"radius of its training, {radius_text(spec.eps)}, by `freeat evaluate RUN --attack autoattack`"
        )
    claim = Claim(
        dataset=manifest.run.data.name,
        architecture=spec.model,
        eps=radius_text(spec.eps),
        clean_acc=f"{100 * scores.test.clean_accuracy:.2f}",
        reported=f"{100 * min(robust):.2f}",
        autoattack_acc=f"{100 * whole[0].robust_accuracy:.2f}" if whole else None,
    )
    return claim, _form(manifest, claim)


def _form(manifest: Manifest, claim: Claim) -> str:
    spec, made_by = manifest.run.resolved, manifest.run.provenance
    attack = "AutoAttack (standard)" if claim.autoattack_acc else f"`{manifest.scores.attack}`"
    todo = "**to be filled in**"
    missing = (
        ""
        if claim.autoattack_acc
        else "\n\nAutoAttack was not run on all test images: run `freeat evaluate RUN --attack autoattack` and export "
        "again."
    )
    if claim.dataset not in LEADERBOARDS:
        missing += (
            f"\n\nRobustBench has leaderboards for {', '.join(LEADERBOARDS)} only: for {claim.dataset} there is none "
            "to enter this claim in."
        )
    threat = {"linf": "Linf", "l2": "L2"}[spec.norm]
    return f"""\
# Claim for RobustBench: {manifest.name}

## Paper

- title: {todo}
- link: {todo}
- authors: {todo}
- venue: {todo}

## Model

- architecture: `{claim.architecture}`, {manifest.run.parameters:,} parameters
- data set: {claim.dataset}
- threat model: {threat}
- eps: {claim.eps}
- clean accuracy: {claim.clean_acc} %
- robust accuracy: {claim.autoattack_acc or claim.reported} %
- additional data: no, unless the training data hold any: {manifest.run.data.train} images, SHA-256 \
{manifest.run.data.digest[:16]}
- evaluation: {attack}, on {manifest.scores.test.n} of {manifest.scores.test.population} test images
- checkpoint and code: {todo} (this folder; `freeat.load` reads it), trained by `{made_by.command}`{missing}
"""
