"""What a stored run means for its theorem: the parameters of the bound, and which hypotheses the run violates."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from freeat.algorithms import parse_algorithm
from freeat.algorithms.step import threat_of
from freeat.data import parse_augmentation
from freeat.errors import InputError
from freeat.learner.schedules import Clock, make_schedule
from freeat.objectives import Objective
from freeat.runs.build import build_algorithm, build_data, build_images
from freeat.runs.folder import RunFolder
from freeat.runs.open import load
from freeat.runs.spec import TrainSpec
from freeat.stability.constants import Constants, constants_under_attack
from freeat.theory import relative_step


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
    spec = folder.spec
    name = parse_algorithm(spec.algorithm)
    if name.theorem is None:
        raise InputError(f"run {path} trained {spec.algorithm}: the paper bounds vanilla, fast and free")
    data = build_data(spec, data_dir=data_dir)
    folder.check_data(data, "give all constants yourself, without --from")
    model = load(path, trust_code=trust_code)
    updates = folder.description.updates
    algorithm = build_algorithm(replace(spec, warmup=0.0), updates)
    train = build_images(spec, data)[0]
    objective: Objective = algorithm.objective  # type: ignore[attr-defined]  # all that a theorem covers have one
    constants = constants_under_attack(
        model, objective, train.sample(points), threat_of(algorithm), spec.seed, steps=10
    )
    constants = _with_history(constants, folder)
    m, step = algorithm.updates_per_batch, getattr(algorithm, "step_size", None)
    parameters: dict[str, float | None] = {
        "beta": constants.beta,
        "c": smallest_c(spec, updates, m),
        "L": constants.L,
        "L_w": constants.L_w,
        "eps": spec.eps if name.adversarial else 0.0,
        "b": spec.batch_size,
        "n": len(train),
        "T": updates,
        "psi": constants.psi,
        "alpha": None if step is None else relative_step(step, spec.eps),
        "m": m,
    }
    facts = _facts(
        spec, model, constants, augmented=parse_augmentation(spec.augment, data.augment) is not None
    )
    return RunBound(algorithm=name.theorem, parameters=parameters, facts=facts, constants=constants)


def smallest_c(spec: TrainSpec, updates: int, m: int) -> float:
    """The smallest c with which the schedule's steps obey α_t ≤ c/(mt) at every batch t."""
    schedule = make_schedule(spec.schedule, spec.lr, m)
    return max(
        m * (u // m + 1) * schedule(Clock(update=u, batch=u // m + 1, total=updates)) for u in range(updates)
    )


def _with_history(constants: Constants, folder: RunFolder) -> Constants:
    """The constants with the gradients that the run's history counted."""
    for record in folder.history():
        if norms := record.gradient_norms:
            constants = constants.with_gradients(norms.smallest_so_far, sum(norms.bins.values()))
    return constants


def _facts(spec: TrainSpec, model: nn.Module, constants: Constants, *, augmented: bool) -> dict[str, bool]:
    """The hypotheses that the spec settles; Lipschitz constants and ψ > 0 are estimated, so they stay open."""
    mixing = any(
        getattr(module, "running_mean", None) is not None or getattr(module, "p", 0.0)
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase | nn.modules.dropout._DropoutNd)
    )
    adversarial = parse_algorithm(spec.algorithm).adversarial
    facts = {
        "bounded_loss": False,
        "per_sample_loss": not mixing,
        "l2_ball": spec.norm == "l2" or not adversarial,
        "no_box": not spec.box,
        "no_augmentation": not augmented,
        "plain_sgd": spec.optimizer == "sgd"
        and not any((spec.momentum, spec.weight_decay, spec.clip_grad, spec.awp))
        and spec.proximal is None,
        "vanishing_step": True,  # with the c of smallest_c, by its definition
        "sampling_without_replacement": spec.sampling == "independent" and spec.replay == 1,
        "exact_inner_max": not adversarial,
        "constant_attack_step": spec.warmup == 0,
        "fresh_start": not (spec.algorithm_args or {}).get("carry", False),
    }
    if not facts["l2_ball"]:
        facts["approximately_smooth"] = False  # η = 2βε is that of an L2 ball
    if constants.beta is None:
        facts["smooth"] = False
    if constants.smallest_gradient == 0:
        facts["psi_positive"] = False
    return facts
