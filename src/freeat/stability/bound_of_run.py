"""What a stored run means for its theorem: the parameters of the bound, and which hypotheses the run violates."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from freeat.algorithms import Erm, Fast, Free, Vanilla, parse_algorithm
from freeat.attacks.pgd import last_iterate
from freeat.compute.frozen import frozen
from freeat.data import Images, parse_augmentation
from freeat.errors import InputError
from freeat.learner.schedules import Clock, make_schedule
from freeat.rng import ImageRng
from freeat.runs.build import build_algorithm, build_ball, build_data, build_images
from freeat.runs.folder import RunFolder
from freeat.runs.open import load
from freeat.runs.spec import TrainSpec
from freeat.stability import Constants, estimate_constants
from freeat.theory import relative_step
from freeat.threat import Ball

THEOREM_OF = {"vanilla": "vanilla", "fast": "fast", "free": "free", "erm": "vanilla"}
"""The bound for each family; plain training is Vanilla's with ε = 0."""


@dataclass(frozen=True, kw_only=True)
class RunBound:
    """A run as its theorem sees it; ``parameters`` are those of its bound by name, None where one is not known."""

    algorithm: str
    parameters: dict[str, float | None]
    facts: dict[str, bool]
    constants: Constants


def bound_of_run(
    path: Path, *, points: int = 64, data_dir: Path | None = None, trust_code: bool = False
) -> RunBound:
    """The bound's parameters from a run folder; L, L_w, β and ψ are estimated at ``points`` training images.

    c is the smallest with which the run's steps obey α_t ≤ c/t (for Free c/(mt)), ψ comes from the smallest
    ‖∇_δ h‖ of the whole run where its history holds it.
    """
    folder = RunFolder(path)
    spec, description = folder.spec, folder.description
    family = parse_algorithm(spec.algorithm).family
    if family not in THEOREM_OF:
        raise InputError(f"run {path} trained {spec.algorithm}: the paper bounds vanilla, fast and free")
    data = build_data(spec, data_dir=data_dir)
    folder.check_data(data.digest, "give all constants yourself, without --from")
    model = load(path, trust_code=trust_code)
    updates = int(description["updates"])
    ball = build_ball(spec)
    algorithm = build_algorithm(spec.replaced(warmup=0.0), updates)
    assert isinstance(algorithm, Vanilla | Fast | Free | Erm)
    train = build_images(spec, data)[0]
    constants = _constants(model, algorithm, ball, train, spec.seed, points)
    constants = _with_history(constants, folder)
    m = algorithm.updates_per_batch
    parameters: dict[str, float | None] = {
        "beta": constants.beta,
        "c": smallest_c(spec, updates, m),
        "L": constants.L,
        "L_w": constants.L_w,
        "eps": 0.0 if family == "erm" else spec.eps,
        "b": spec.batch_size,
        "n": len(train),
        "T": updates,
        "psi": constants.psi,
        "alpha": None if isinstance(algorithm, Erm) else relative_step(algorithm.step_size, spec.eps),
        "m": m,
    }
    facts = _facts(
        spec, model, constants, augmented=parse_augmentation(spec.augment, data.augment) is not None
    )
    return RunBound(algorithm=THEOREM_OF[family], parameters=parameters, facts=facts, constants=constants)


def smallest_c(spec: TrainSpec, updates: int, m: int) -> float:
    """The smallest c with which the schedule's steps obey α_t ≤ c/(mt) at every batch t."""
    schedule = make_schedule(spec.schedule, spec.lr, m)
    return max(
        m * (u // m + 1) * schedule(Clock(update=u, batch=u // m + 1, total=updates)) for u in range(updates)
    )


def _constants(
    model: nn.Module,
    algorithm: Vanilla | Fast | Free | Erm,
    ball: Ball,
    train: Images,
    seed: int,
    points: int,
) -> Constants:
    images = train.subset(min(points, len(train)), seed)
    x, y = images.batch(torch.arange(len(images)))
    rng = ImageRng(seed, images.index.tolist())
    delta = torch.zeros_like(x)
    if not isinstance(algorithm, Erm):
        attack = algorithm.objective.attack(model, x, y)
        with frozen(model, "eval"):
            delta = last_iterate(attack, x, ball, rng, steps=10, alpha=ball.eps / 4)
    return estimate_constants(model, algorithm.objective, x, y, delta)


def _with_history(constants: Constants, folder: RunFolder) -> Constants:
    """The constants with the gradients that the run's history counted."""
    for record in folder.history():
        if norms := record.get("gradient_norms"):
            constants = constants.with_gradients(norms["smallest_so_far"], sum(norms["bins"].values()))
    return constants


def _facts(spec: TrainSpec, model: nn.Module, constants: Constants, *, augmented: bool) -> dict[str, bool]:
    """The hypotheses that the spec settles; Lipschitz constants and ψ > 0 are estimated, so they stay open."""
    mixing = any(
        getattr(module, "running_mean", None) is not None or getattr(module, "p", 0.0)
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase | nn.modules.dropout._DropoutNd)
    )
    facts = {
        "bounded_loss": False,
        "per_sample_loss": not mixing,
        "l2_ball": spec.norm == "l2" or parse_algorithm(spec.algorithm).family == "erm",
        "no_box": not spec.box,
        "no_augmentation": not augmented,
        "plain_sgd": spec.optimizer == "sgd" and spec.momentum == 0 and spec.weight_decay == 0,
        "vanishing_step": True,  # with the c of smallest_c, by its definition
        "sampling_without_replacement": spec.sampling == "independent",
        "exact_inner_max": parse_algorithm(spec.algorithm).family == "erm",
        "constant_attack_step": spec.warmup == 0,
        "fresh_start": not (spec.algorithm_args or {}).get("carry", False),
    }
    if constants.beta is None:
        facts["smooth"] = False
    if constants.smallest_gradient == 0:
        facts["psi_positive"] = False
    return facts
