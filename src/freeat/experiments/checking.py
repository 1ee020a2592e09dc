"""The honesty checks of the models of a campaign: made once for each, and stored as its cells are."""

from dataclasses import asdict, replace

from freeat.evaluation.probe import IMAGES, probe
from freeat.evaluation.sanity import Check
from freeat.experiments.sweep_plan import Plan, Watch
from freeat.runs.open import Opened
from freeat.runs.results import Cells


def check_model(model: Opened, plan: Plan, store: Cells, watch: Watch) -> list[Check]:
    """The checks of the model itself, at the smallest radius of each norm, 0 only where there is no other."""
    split = plan.splits[-1]
    images, _ = plan.images(split, model)
    smallest_last = sorted(plan.balls, key=lambda ball: (ball.eps > 0, -ball.eps))
    checks: list[Check] = []
    for ball in {ball.norm: ball for ball in smallest_last}.values():
        key = plan.identity("probe", model, split=split, images=images, ball=ball, attack=None)
        found = store.find(key)
        if found is None:
            progress = watch(f"{model.name}: honesty checks", 1)
            made = probe(
                model.model,
                images,
                ball,
                classes=len(plan.data.classes),
                seed=plan.seed,
                batch_size=min(plan.batch_size, IMAGES),
            )
            progress(1)
            found = store.store(key, {"checks": [asdict(check) for check in made]})
        made = [Check(**document) for document in found["checks"]]
        said = f"{model.name} ({type(ball).__name__})"
        checks += [replace(check, sentence=f"{said}: {check.sentence}") for check in made]
    return checks
