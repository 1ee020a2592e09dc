"""Clean and robust risk of a model on a sample, and the robust generalization gap."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from freeat.attacks.verdict import Attack
from freeat.compute.freezing import lent
from freeat.compute.passes import Passes
from freeat.data import Augmentation, Images
from freeat.errors import wrong_type
from freeat.evaluation.batches import Columns, home, judged_batches
from freeat.evaluation.statistics import difference, sampled, wilson
from freeat.learner.distributed import ALONE, World
from freeat.objectives import cross_entropy
from freeat.threat import Ball, check_ball

EVALUATION_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a model did on each image of a sample of ``population`` images; tensors on the CPU."""

    index: Tensor
    y: Tensor
    clean_correct: Tensor
    clean_loss: Tensor
    robust_correct: Tensor
    robust_loss: Tensor
    classes: int
    population: int
    passes: Passes

    def summary(self) -> dict[str, Any]:
        """Accuracies and losses, whole and per class, as plain numbers."""
        per_class = [self._class_accuracies(k) for k in range(self.classes) if bool((self.y == k).any())]
        robust = [row["robust_accuracy"] for row in per_class]
        n = len(self.y)
        return {
            "n": n,
            "population": self.population,
            "classes": self.classes,
            "clean_accuracy": _mean(self.clean_correct),
            "clean_loss": _mean(self.clean_loss),
            "robust_accuracy": _mean(self.robust_correct),
            "robust_loss": _mean(self.robust_loss),
            "robust_interval": list(wilson(int(self.robust_correct.sum()), n)),
            "balanced_robust_accuracy": sum(robust) / len(robust),
            "worst_class_robust_accuracy": min(robust),
            "per_class": per_class,
            "passes": asdict(self.passes),
        }

    def _class_accuracies(self, k: int) -> dict[str, float]:
        of_class = self.y == k
        return {
            "class": k,
            "n": int(of_class.sum()),
            "clean_accuracy": _mean(self.clean_correct[of_class]),
            "robust_accuracy": _mean(self.robust_correct[of_class]),
        }


def _mean(values: Tensor) -> float:
    return float(values.double().mean())


def evaluate(
    model: nn.Module,
    images: Images,
    attack: Attack,
    ball: Ball,
    *,
    classes: int,
    seed: int = 0,
    population: int | None = None,
    augment: Augmentation | None = None,
    batch_size: int = EVALUATION_BATCH,
    world: World = ALONE,
) -> Outcome:
    """The model's clean and robust risk on the images, in fp32; the draws follow each image, not the batch.

    ``population``: how many images these were sampled from (default: they are all). ``augment``: judge a random
    view of each image instead of the image itself, the same view at every evaluation.
    """
    check_attack(attack)
    check_ball(ball)
    if not isinstance(images, Images):
        raise wrong_type("images", images, "pass a split of a data set, such as data.test")
    mine = torch.arange(len(images))[world.share(len(images))]
    found, passes = Columns(), Passes()
    with lent(model):
        for batch in judged_batches(model, images, batch_size, seed=seed, rows=mine, augment=augment):
            with torch.no_grad():
                clean = model(batch.x)
            attacked = attack(model, batch.x, batch.y, ball, batch.rng, with_loss=True)
            assert attacked.loss is not None
            passes.forward += len(batch.y) + attacked.passes.forward
            passes.gradient += attacked.passes.gradient
            found.add(
                clean_correct=clean.argmax(-1) == batch.y,
                clean_loss=cross_entropy(clean, batch.y),
                robust_correct=~attacked.fooled,
                robust_loss=attacked.loss,
            )
    columns = {name: world.concatenate(values) for name, values in found.joined().items()}
    return Outcome(
        index=images.index.cpu(),
        y=images.y.cpu(),
        clean_correct=columns["clean_correct"],
        clean_loss=columns["clean_loss"],
        robust_correct=columns["robust_correct"],
        robust_loss=columns["robust_loss"],
        classes=classes,
        population=population or len(images),
        passes=world.total(passes, home(model)[0]),
    )


def gap(train: dict[str, Any], test: dict[str, Any], measure: str = "robust_accuracy") -> dict[str, Any]:
    """Training minus test accuracy with a 95 % interval.

    A training set evaluated whole has no sampling error, a sample of it has that of a finite population; test
    images stand for the unseen. The spread over seeds is not in it: that takes several runs.
    """
    p, q = train[measure], test[measure]
    of_p = sampled(p * train["n"], train["n"], train["population"])
    of_q = wilson(q * test["n"], test["n"])
    low, high = difference(p, of_p, q, of_q)
    return {"value": p - q, "low": low, "high": high}


def check_attack(attack: object) -> None:
    """An attack, not its name or class."""
    if isinstance(attack, type) or not callable(attack):
        raise wrong_type("attack", attack, "pass an attack, such as freeat.Pgd(steps=10)")
