"""A model under an attack, image by image: who was right, who was fooled, at what cost."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from freeat.attacks.verdict import Attack, Attacked
from freeat.compute.freezing import lent
from freeat.compute.passes import Passes
from freeat.data import Images
from freeat.errors import InputError
from freeat.evaluation.batches import Columns, home, judged_batches
from freeat.evaluation.statistics import wilson
from freeat.objectives import Model
from freeat.threat import Ball

BATCH = 256
Progress = Callable[[int], None]  # how many more images are done


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """What happened to each image; tensors on the CPU. ``predicted`` is the label given to x + δ.

    ``delta`` is there if it was asked to be kept.
    """

    index: Tensor
    y: Tensor
    clean_correct: Tensor
    robust_correct: Tensor
    predicted: Tensor
    delta: Tensor | None
    queries: Tensor | None
    passes: Passes
    seconds: float
    notes: tuple[str, ...]
    classes: int
    population: int

    @property
    def perturbations(self) -> Tensor:
        """δ of every image, where they were kept."""
        if self.delta is None:
            raise InputError("the measurement kept no perturbations: measure with keep_delta=True")
        return self.delta

    def summary(self) -> dict[str, Any]:
        """Accuracies with 95 % intervals, whole and per class, and what they cost, as plain numbers.

        ``misclassified`` and ``fooled`` list the images that are wrong when clean and under the attack, the latter
        whether or not they were right before; ``turned_wrong`` counts those that the attack alone made wrong.
        """
        n = len(self.y)
        return {
            "n": n,
            "population": self.population,
            **_proportion("clean", self.clean_correct),
            **_proportion("robust", self.robust_correct),
            "per_class": [
                {"class": k, "n": int(of_class.sum())}
                | _proportion("clean", self.clean_correct[of_class])
                | _proportion("robust", self.robust_correct[of_class])
                for k in range(self.classes)
                if bool((of_class := self.y == k).any())
            ],
            "misclassified": self.index[~self.clean_correct].tolist(),
            "fooled": self.index[~self.robust_correct].tolist(),
            "wrong_when_clean": int((~self.clean_correct).sum()),
            "wrong_under_attack": int((~self.robust_correct).sum()),
            "turned_wrong": int((self.clean_correct & ~self.robust_correct).sum()),
            "queries": None if self.queries is None else _spread(self.queries),
            "passes": asdict(self.passes),
            "seconds": self.seconds,
            "notes": list(self.notes),
        }


def _proportion(name: str, hits: Tensor) -> dict[str, Any]:
    k, n = int(hits.sum()), len(hits)
    return {f"{name}_accuracy": k / n, f"{name}_interval": list(wilson(k, n))}


def _spread(queries: Tensor) -> dict[str, Any]:
    """Queries over the images that were asked about at all; those wrong when clean need none."""
    asked = queries[queries > 0].double()
    if not len(asked):
        return {"total": 0, "mean": 0.0, "median": 0.0, "most": 0, "per_image": queries.tolist()}
    return {
        "total": int(asked.sum()),
        "mean": float(asked.mean()),
        "median": float(asked.median()),
        "most": int(asked.max()),
        "per_image": queries.tolist(),
    }


def measure(
    model: nn.Module,
    images: Images,
    attack: Attack,
    ball: Ball,
    *,
    classes: int,
    seed: int = 0,
    population: int | None = None,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    keep_delta: bool = True,
) -> Measurement:
    """Attack every image in evaluation mode. Whether it is fooled is judged by the model on the stored x + δ.

    What the attack claims does not count, nor what it does not claim: one that is guided by bf16 may pass by an image
    that fp32 gets wrong. In a ball of radius 0 there is nothing to attack, and the clean verdict is the answer.
    """
    images = images.to(home(model)[0])
    found, passes = Columns(), Passes()
    notes: dict[str, None] = {}
    began = time.perf_counter()
    with lent(model):
        for batch in judged_batches(model, images, batch_size, seed=seed):
            x, y = batch.x, batch.y
            clean = labels(model, x, torch.zeros_like(x), ball)
            ticks = _Ticks(model, getattr(attack, "queries", None), len(x), progress)
            attacked = attack(ticks, x, y, ball, batch.rng) if ball.eps > 0 else _untouched(x, attack)
            predicted = labels(model, x, attacked.delta, ball) if ball.eps > 0 else clean
            passes.forward += len(x) * (2 if ball.eps > 0 else 1) + attacked.passes.forward
            passes.gradient += attacked.passes.gradient
            notes |= dict.fromkeys(attacked.notes)
            found.add(clean_correct=clean == y, robust_correct=predicted == y, predicted=predicted)
            if keep_delta:
                found.add(delta=attacked.delta)
            if attacked.queries is not None:
                found.add(queries=attacked.queries)
            ticks.end()
    return measurement_of(
        images,
        found,
        passes=passes,
        seconds=time.perf_counter() - began,
        notes=tuple(notes),
        classes=classes,
        population=population,
    )


class _Ticks:
    """The model while an attack of so many queries asks it about a batch: the images count as they are worked off.

    A batch of thousands of queries takes minutes; where their number is not known its images count at the end.
    """

    def __init__(self, f: Model, queries: int | None, images: int, progress: Progress | None) -> None:
        self.f = f
        self.queries = queries
        self.images = images
        self.progress = progress
        self.asked = self.counted = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.asked += 1
        if self.queries is not None:
            self._count(min(self.images * self.asked // self.queries, self.images))
        return self.f(x)

    def end(self) -> None:
        """All images are done, however few queries they took."""
        self._count(self.images)

    def _count(self, done: int) -> None:
        if self.progress is not None and done > self.counted:
            self.progress(done - self.counted)
            self.counted = done


def _untouched(x: Tensor, attack: Attack) -> Attacked:
    """Images that nothing was done to."""
    nothing = torch.zeros(len(x), dtype=torch.int64)
    return Attacked(
        delta=torch.zeros_like(x),
        fooled=nothing.bool(),
        loss=None,
        passes=Passes(),
        queries=nothing if attack.black_box else None,
    )


def measurement_of(
    images: Images,
    found: Columns,
    *,
    passes: Passes,
    seconds: float,
    classes: int,
    population: int | None,
    notes: tuple[str, ...] = (),
) -> Measurement:
    """What was found of these images as a measurement; without a population they are all there are."""
    columns = found.joined()
    return Measurement(
        index=images.index.cpu(),
        y=images.y.cpu(),
        clean_correct=columns["clean_correct"],
        robust_correct=columns["robust_correct"],
        predicted=columns["predicted"],
        delta=columns.get("delta"),
        queries=columns.get("queries"),
        passes=passes,
        seconds=seconds,
        notes=notes,
        classes=classes,
        population=population or len(images),
    )


def joined(parts: Sequence[Measurement], *, population: int | None = None) -> Measurement:
    """Measurements of the parts of one sample as one."""
    names = ["index", "y", "clean_correct", "robust_correct", "predicted"]
    names += [name for name in ("delta", "queries") if getattr(parts[0], name) is not None]
    columns: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return replace(
        parts[0],
        **columns,
        passes=Passes(
            gradient=sum(part.passes.gradient for part in parts),
            forward=sum(part.passes.forward for part in parts),
        ),
        seconds=sum(part.seconds for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        population=population or sum(len(part.y) for part in parts),
    )


@torch.no_grad()
def labels(model: nn.Module, x: Tensor, delta: Tensor, ball: Ball) -> Tensor:
    """The labels the model gives to x + δ."""
    predicted: Tensor = model(ball.apply(x, delta)).argmax(-1)
    return predicted
