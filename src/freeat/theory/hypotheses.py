"""What each bound takes for granted, as data, so that the settings of a run can be held against it."""

from collections.abc import Mapping
from dataclasses import dataclass

from freeat.errors import unknown_name
from freeat.theory.recursion import USED

_ALL = tuple(USED)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One hypothesis: its key, a plain sentence, and the algorithms whose bound needs it."""

    key: str
    sentence: str
    algorithms: tuple[str, ...] = _ALL


HYPOTHESES: tuple[Hypothesis, ...] = (
    Hypothesis(
        key="bounded_loss",
        sentence="The loss h lies in [0, 1] (1 − p_y does; cross-entropy does not).",
    ),
    Hypothesis(
        key="lipschitz",
        sentence="h is L-Lipschitz in (w, δ) and L_w-Lipschitz in w, for all w reached and all δ in the ball.",
    ),
    Hypothesis(
        key="smooth",
        sentence="The gradient of h in (w, δ) is β-Lipschitz (ReLU networks have no such β).",
    ),
    Hypothesis(
        key="per_sample_loss",
        sentence="h is a function of w, δ and one example: no batch norm in training mode, no dropout.",
    ),
    Hypothesis(
        key="l2_ball",
        sentence="The perturbation set is the L2 ball of radius ε.",
    ),
    Hypothesis(
        key="no_box",
        sentence="x + δ is not clamped to the range of images.",
    ),
    Hypothesis(
        key="no_augmentation",
        sentence="Images are seen as they are stored, without augmentation.",
    ),
    Hypothesis(
        key="plain_sgd",
        sentence="Weights move by plain SGD: no momentum, weight decay, clipping or averaging.",
    ),
    Hypothesis(
        key="vanishing_step",
        sentence="The weight step at batch t is at most c/t; for Free at most c/(mt), in all its m updates.",
    ),
    Hypothesis(
        key="sampling_without_replacement",
        sentence="Each batch is a uniform subset of b distinct examples, drawn independently at every step "
        "(not the successive slices of a shuffled epoch).",
    ),
    Hypothesis(
        key="exact_inner_max",
        sentence="The attack attains the maximum of h over the ball (PGD only approaches it).",
        algorithms=("vanilla",),
    ),
    Hypothesis(
        key="psi_positive",
        sentence="‖∇_δ h‖ ≥ 1/ψ at every point where the training takes that gradient.",
        algorithms=("fast", "free"),
    ),
    Hypothesis(
        key="constant_attack_step",
        sentence="The relative attack step α_δ is the same throughout the training.",
        algorithms=("fast", "free"),
    ),
    Hypothesis(
        key="fresh_start",
        sentence="δ starts anew at every batch, by a draw that depends on neither w nor the data.",
        algorithms=("fast", "free"),
    ),
)
"""All that the theorems assume, each with the algorithms whose theorem does."""


def hypotheses(algorithm: str) -> list[Hypothesis]:
    """The hypotheses of the algorithm's bound (Theorems 2, 5 and 4)."""
    if algorithm not in USED:
        raise unknown_name("algorithm", algorithm, USED)
    return [hypothesis for hypothesis in HYPOTHESES if algorithm in hypothesis.algorithms]


def violations(algorithm: str, facts: Mapping[str, bool]) -> list[Hypothesis]:
    """The hypotheses that the facts deny; ``facts`` maps a key to whether it holds."""
    return [hypothesis for hypothesis in _checked(algorithm, facts) if facts.get(hypothesis.key) is False]


def unsettled(algorithm: str, facts: Mapping[str, bool]) -> list[Hypothesis]:
    """The hypotheses that the facts are silent about."""
    return [hypothesis for hypothesis in _checked(algorithm, facts) if hypothesis.key not in facts]


def _checked(algorithm: str, facts: Mapping[str, bool]) -> list[Hypothesis]:
    known = {hypothesis.key for hypothesis in HYPOTHESES}
    for key in facts:
        if key not in known:
            raise unknown_name("hypothesis", key, known)
    return hypotheses(algorithm)
