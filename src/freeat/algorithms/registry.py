"""Algorithms by the names people write: ``vanilla-10``, ``fast``, ``free-4``, ``trades-10``, ``free-trades-4``.

A name is a family (``erm``, ``vanilla``, ``fast``, ``free``, ``friendly``; ``vanilla`` where only an objective is
named), an objective (``trades``, ``alp``, ``mart``; cross-entropy where none is named) and the number m of
inner steps, in this order, joined by hyphens.
"""

from dataclasses import dataclass

from freeat.algorithms.erm import Erm
from freeat.algorithms.fast import Fast
from freeat.algorithms.free import Free
from freeat.algorithms.friendly import Friendly
from freeat.algorithms.step import Algorithm
from freeat.algorithms.vanilla import Vanilla
from freeat.algorithms.warmup import WarmUp
from freeat.errors import InputError, unknown_name
from freeat.objectives import OBJECTIVES, Objective
from freeat.threat import STARTS, Ball, Start

FAMILIES: dict[str, type[Algorithm]] = {
    "erm": Erm,
    "vanilla": Vanilla,
    "fast": Fast,
    "free": Free,
    "friendly": Friendly,
}
COUNTED = {"vanilla": 10, "free": 4, "friendly": 10}
"""The families that take a number m, with what their bare name means."""

EXAMPLES = {
    "erm": "no adversary: empirical risk minimization",
    "vanilla-10": "Algorithm 1: PGD-10, then one descent of w",
    "fast": "Algorithm 3: one step from a random start, then one descent of w",
    "free-4": "Algorithm 2: 4 simultaneous steps of w and δ on each batch",
    "friendly": "PGD-10 that stops 3 steps after an image is misclassified",
    "trades-10": "Algorithm 1 with the TRADES loss (11)",
    "free-trades-4": "Algorithm 4: Algorithm 2 with the TRADES loss (11)",
    "alp-10": "Algorithm 1 with adversarial logit pairing",
    "free-alp-4": "Algorithm 2 with adversarial logit pairing",
    "mart-10": "Algorithm 1 with the MART loss",
    "free-mart-4": "Algorithm 2 with the MART loss",
}
"""The names shown to a newcomer; every m ≥ 1 works."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmName:
    """A parsed name; ``str`` gives its canonical form, with m written out."""

    family: str
    objective: str = "ce"
    m: int | None = None

    def __str__(self) -> str:
        words = [self.objective] if self.objective != "ce" else []
        if self.family != "vanilla" or not words:
            words.insert(0, self.family)
        return "-".join([*words, *([str(self.m)] if self.m is not None else [])])


def parse_algorithm(text: str) -> AlgorithmName:
    """The name read, with the default m filled in."""
    words = text.lower().replace("_", "-").split("-")
    family = words.pop(0) if words[0] in FAMILIES else None
    objective = words.pop(0) if words and words[0] in OBJECTIVES and words[0] != "ce" else "ce"
    m = int(words.pop(0)) if words and words[0].isdecimal() else None
    if words or (family is None and objective == "ce"):
        raise unknown_name("algorithm", text, EXAMPLES)
    family = family or "vanilla"
    if m is not None and family not in COUNTED:
        raise InputError(f"algorithm {text!r}: {family} takes no number of steps; write {family!r}")
    if m == 0:
        raise InputError(f"algorithm {text!r}: the number of steps must be at least 1")
    return AlgorithmName(family=family, objective=objective, m=m or COUNTED.get(family))


def make_algorithm(
    name: str,
    ball: Ball,
    *,
    alpha: float | None = None,
    start: str | None = None,
    objective: Objective | None = None,
    eval_eps: float | None = None,
    tau: int = Friendly.tau,
    omega: float = Friendly.omega,
    carry: bool = False,
    warmup_updates: int = 0,
) -> Algorithm:
    """The algorithm of that name against ``ball``; what is None follows from the name, the norm and ε.

    ``objective`` replaces the named one (to give it another coefficient). ``eval_eps`` is the radius the model
    is judged at: Friendly's step is a quarter of it, whatever its training radius. A setting that the algorithm has
    no use for is refused.
    """
    parsed = parse_algorithm(name)
    if start is not None and start not in STARTS:
        raise unknown_name("start", start, STARTS)
    if carry and parsed.family != "free":
        raise InputError(f"carry keeps δ between batches, which only Free does, not {name!r}")
    if (tau, omega) != (Friendly.tau, Friendly.omega) and parsed.family != "friendly":
        raise InputError(
            f"τ = {tau} and ω = {omega:g} are settings of Friendly, which {name!r} does not have: leave them out"
        )
    attack = {"alpha": alpha, "start": start, "warmup_updates": warmup_updates or None}
    if parsed.family == "erm" and (given := [f"{k} = {v}" for k, v in attack.items() if v is not None]):
        raise InputError(
            f"{', '.join(given)}: {name!r} trains without an attack, which is what this sets; leave it out"
        )
    if objective is None:
        objective = OBJECTIVES[parsed.objective]()
    begin: Start = start or default_start(parsed)  # type: ignore[assignment]
    m = parsed.m or 1
    algorithm: Vanilla | Fast | Free | Friendly
    match parsed.family:
        case "erm":
            return Erm(objective=objective)
        case "vanilla":
            algorithm = Vanilla(ball=ball, m=m, alpha=alpha, start=begin, objective=objective)
        case "fast":
            algorithm = Fast(ball=ball, alpha=alpha, start=begin, objective=objective)
        case "free":
            algorithm = Free(ball=ball, m=m, alpha=alpha, start=begin, objective=objective, carry=carry)
        case _:
            step = alpha if alpha is not None or eval_eps is None else eval_eps / 4
            algorithm = Friendly(
                ball=ball, m=m, tau=tau, omega=omega, alpha=step, start=begin, objective=objective
            )
    return WarmUp(algorithm=algorithm, updates=warmup_updates) if warmup_updates else algorithm


def default_start(name: AlgorithmName) -> Start:
    """As the algorithms are written: uniform in Δ, and 0.001·N(0, 1) for the attacks of TRADES and MART."""
    gaussian = name.family == "vanilla" and name.objective in ("trades", "mart")
    return "gaussian" if gaussian else "uniform"
