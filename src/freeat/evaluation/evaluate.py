"""Clean and robust accuracy of a model on images: the one evaluator, and what it returns."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from freeat.attacks.result import Attack, AttackResult
from freeat.compute import Cost
from freeat.compute.frozen import frozen_eval
from freeat.data import Augmentation, Images
from freeat.data.images import in_unit_box
from freeat.errors import InputError, wrong_type
from freeat.evaluation.statistics import Limits, chance, difference, sampled, wilson
from freeat.learner.distributed import SINGLE_PROCESS, ProcessGroup
from freeat.objectives import Model, cross_entropy
from freeat.rng import ImageRng, to_device
from freeat.threat import Ball, check_ball

BATCH = 256
Progress = Callable[[int], None]  # receives the number of images newly done
Measure = Literal["robust_accuracy", "clean_accuracy"]


@dataclass(frozen=True, kw_only=True)
class ClassSummary:
    """Accuracies on the images of one class, with their 95 % intervals."""

    label: int
    n: int
    clean_accuracy: float
    clean_interval: Limits
    robust_accuracy: float
    robust_interval: Limits

    def __post_init__(self) -> None:
        _check_accuracies(self)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Accuracies and mean losses on ``n`` of ``population`` images, whole and per class, and what they cost.

    Intervals are Wilson's, at 95 %. The losses are there if they were asked for; the robust one is the mean over
    images of the largest cross-entropy that the attack saw. ``constant_answer`` is the class that the model gives to
    every clean image, if these are of several classes.
    """

    n: int
    population: int
    classes: int
    clean_accuracy: float
    clean_interval: Limits
    robust_accuracy: float
    robust_interval: Limits
    balanced_robust_accuracy: float
    worst_class_robust_accuracy: float
    per_class: tuple[ClassSummary, ...]
    cost: Cost
    clean_loss: float | None = None
    robust_loss: float | None = None
    constant_answer: int | None = None

    def __post_init__(self) -> None:
        _check_accuracies(self)
        if not self.per_class or self.n > self.population:
            raise ValueError(
                f"{self.n} images of {len(self.per_class)} classes are not {self.population} or fewer"
            )

    @property
    def chance(self) -> float:
        """The accuracy of the best constant answer: the share of the largest class among these images."""
        return chance(one.n for one in self.per_class)

    def above_chance(self, measure: Measure = "robust_accuracy") -> bool:
        """Whether an accuracy is above chance by its 95 % interval; that of a constant answer never is."""
        low, _ = self.robust_interval if measure == "robust_accuracy" else self.clean_interval
        return self.constant_answer is None and low > self.chance


def _check_accuracies(summary: Summary | ClassSummary) -> None:
    """Refuse numbers that no evaluation gives: reports compute with those of a file."""
    shares = (
        summary.clean_accuracy,
        *summary.clean_interval,
        summary.robust_accuracy,
        *summary.robust_interval,
    )
    if summary.n < 1 or not all(0 <= share <= 1 for share in shares):
        raise ValueError("accuracies are shares of at least one image")


@dataclass(frozen=True, kw_only=True)
class Queries:
    """Queries of a black-box attack, over the images it queried; those wrong when clean need none."""

    total: int
    mean: float
    median: float
    most: int
    per_image: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Outcomes(Summary):
    """A summary with the outcome of every image.

    ``misclassified`` and ``fooled`` list the images that are wrong when clean and under the attack, the latter
    whether or not they were right before. ``turned_wrong`` counts those that the attack alone made wrong.
    """

    misclassified: tuple[int, ...]
    fooled: tuple[int, ...]
    wrong_when_clean: int
    wrong_under_attack: int
    turned_wrong: int
    seconds: float
    notes: tuple[str, ...] = ()
    queries: Queries | None = None


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A difference of accuracies with its 95 % interval, in [−1, 1]; as text in points."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}] points"


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """The evaluation of a model on each image of a sample of ``population`` images; tensors on the CPU.

    ``clean_predicted`` is the label given to x; ``predicted`` is that of x + δ, where it was decided here and not by
    the attack. Losses and δ are there if they were asked for, ``queries`` for black-box attacks.
    """

    index: Tensor
    y: Tensor
    clean_predicted: Tensor
    clean_correct: Tensor
    robust_correct: Tensor
    clean_loss: Tensor | None = None
    robust_loss: Tensor | None = None
    predicted: Tensor | None = None
    delta: Tensor | None = None
    queries: Tensor | None = None
    cost: Cost
    seconds: float
    notes: tuple[str, ...] = ()
    classes: int
    population: int

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The fields that have one entry per image, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def perturbations(self) -> Tensor:
        """δ of every image, where they were kept."""
        if self.delta is None:
            raise InputError("the evaluation kept no perturbations: evaluate with keep_delta=True")
        return self.delta

    @property
    def labels(self) -> Tensor:
        """The label given to every x + δ, where that was decided by the evaluation itself."""
        if self.predicted is None:
            raise InputError("the evaluation took the attack's result: evaluate with recheck=True")
        return self.predicted

    @property
    def constant_answer(self) -> int | None:
        """The class given to every clean image, if it is always the same."""
        return constant_answer(self.clean_predicted, self.y)

    def summary(self) -> Summary:
        """Accuracies and losses, whole and per class."""
        per_class = tuple(
            ClassSummary(
                label=k,
                n=int(of_class.sum()),
                clean_accuracy=_share(self.clean_correct[of_class]),
                clean_interval=_interval(self.clean_correct[of_class]),
                robust_accuracy=_share(self.robust_correct[of_class]),
                robust_interval=_interval(self.robust_correct[of_class]),
            )
            for k in range(self.classes)
            if bool((of_class := self.y == k).any())
        )
        robust = [one.robust_accuracy for one in per_class]
        return Summary(
            n=len(self.y),
            population=self.population,
            classes=self.classes,
            clean_accuracy=_share(self.clean_correct),
            clean_interval=_interval(self.clean_correct),
            robust_accuracy=_share(self.robust_correct),
            robust_interval=_interval(self.robust_correct),
            balanced_robust_accuracy=sum(robust) / len(robust),
            worst_class_robust_accuracy=min(robust),
            per_class=per_class,
            cost=self.cost,
            clean_loss=_mean(self.clean_loss),
            robust_loss=_mean(self.robust_loss),
            constant_answer=self.constant_answer,
        )

    def outcomes(self) -> Outcomes:
        """The summary with the outcome of every image."""
        return Outcomes(
            **vars(self.summary()),
            misclassified=tuple(self.index[~self.clean_correct].tolist()),
            fooled=tuple(self.index[~self.robust_correct].tolist()),
            wrong_when_clean=int((~self.clean_correct).sum()),
            wrong_under_attack=int((~self.robust_correct).sum()),
            turned_wrong=int((self.clean_correct & ~self.robust_correct).sum()),
            seconds=self.seconds,
            notes=self.notes,
            queries=None if self.queries is None else _spread(self.queries),
        )


def _share(correct: Tensor) -> float:
    return int(correct.sum()) / len(correct)


def _interval(correct: Tensor) -> Limits:
    return wilson(int(correct.sum()), len(correct))


def _mean(losses: Tensor | None) -> float | None:
    return None if losses is None else float(losses.double().mean())


def _spread(queries: Tensor) -> Queries:
    queried = queries[queries > 0].double()
    found = bool(len(queried))
    return Queries(
        total=int(queried.sum()),
        mean=float(queried.mean()) if found else 0.0,
        median=float(queried.median()) if found else 0.0,
        most=int(queried.max()) if found else 0,
        per_image=tuple(queries.tolist()),
    )


def gap(train: Summary, test: Summary, measure: Measure = "robust_accuracy") -> Gap:
    """Training minus test accuracy with a 95 % interval.

    A training set evaluated whole has no sampling error, a sample of it has that of a finite population; test
    images are a sample of the distribution. The interval does not include the spread over seeds.
    """
    p, q = getattr(train, measure), getattr(test, measure)
    of_p = sampled(p * train.n, train.n, train.population)
    of_q = wilson(q * test.n, test.n)
    low, high = difference(p, of_p, q, of_q)
    return Gap(value=p - q, low=low, high=high)


def constant_answer(predicted: Tensor, y: Tensor) -> int | None:
    """The class that is predicted for all images, if these are of several classes; None where predictions differ."""
    constant = bool((predicted == predicted[0]).all()) and bool((y != y[0]).any())
    return int(predicted[0]) if constant else None


def same_answer(train: Summary, test: Summary) -> int | None:
    """The class that the model gives to every clean image of both splits, if it does."""
    return train.constant_answer if train.constant_answer == test.constant_answer else None


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
    batch_size: int = BATCH,
    with_loss: bool = False,
    keep_delta: bool = False,
    recheck: bool = True,
    check_consistency: bool = True,
    progress: Progress | None = None,
    processes: ProcessGroup = SINGLE_PROCESS,
) -> Evaluation:
    """Clean and robust correctness of the model on each image, in frozen eval mode.

    The draws of an image depend on its index and the seed, not on its batch. In a ball of radius 0 the clean
    prediction counts and no attack runs, unless ``with_loss`` is set.

    Args:
        model: a module from images (b, C, H, W) to logits, on any device and in any mode, which is restored.
        images: a split of a data set, such as ``data.test``.
        attack: an attack, such as ``Pgd(steps=10)``.
        ball: the set Δ of perturbations.
        classes: the number of classes of the data.
        seed: the seed of every draw.
        population: the number of images that these were sampled from; by default they are all.
        augment: evaluate a random view of each image instead of the image itself, the same view every time.
        batch_size: the most images in one pass.
        with_loss: also the clean cross-entropy, and the largest one that the attack saw; every image then takes all
            steps.
        keep_delta: keep the perturbations.
        recheck: decide in fp32 on the stored x + δ, at one more forward pass, whatever the attack claims. False
            takes the attack's result, for one that decides in fp32 itself.
        check_consistency: compare the logits of the first batch with a second pass and a smaller batch, at once and
            after all others; warnings are among the notes, and these passes are not counted.
        progress: called with the number of images done, as they are done.
        processes: the group of processes that share the images.

    Returns:
        An ``Evaluation``: a tensor entry per image, and ``summary()`` with accuracies and 95 % intervals.

    Raises:
        InputError: ``images`` is no split, ``attack`` is no attack, or ``ball`` is no ball; or the logits of some
            images, clean or perturbed, are NaN or infinite.

    Example:
        >>> import freeat, torch
        >>> data = freeat.load_data("digits")
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        >>> found = freeat.evaluate(
        ...     model, data.test.sample(20), freeat.Pgd(steps=2), freeat.L2(0.5), classes=10
        ... )
        >>> found.summary().n, bool((found.robust_correct <= found.clean_correct).all())
        (20, True)
    """
    check_attack(attack)
    check_ball(ball)
    if not isinstance(images, Images):
        raise wrong_type("images", images, "pass a split of a data set, such as data.test")
    own = torch.arange(len(images))[processes.share(len(images))]
    attacks = ball.eps > 0 or with_loss
    found: list[dict[str, Tensor]] = []
    cost = Cost()
    notes: dict[str, None] = {}
    finite: list[Tensor] = []
    first: tuple[Tensor, Tensor] | None = None
    began = time.perf_counter()
    with frozen_eval(model):
        for batch in image_batches(model, images, batch_size, seed=seed, rows=own, augment=augment):
            x, y = batch.x, batch.y
            clean = logits_of(model, x)
            counted = _Counted(model, getattr(attack, "queries", None), len(x), progress)
            if attacks:
                attacked = attack(counted, x, y, ball, batch.rng, with_loss=with_loss)
            else:
                attacked = _untouched(x, clean.argmax(-1) != y, attack)
            cost.forward_passes += len(x) + attacked.cost.forward_passes
            cost.gradient_evaluations += attacked.cost.gradient_evaluations
            notes |= dict.fromkeys(attacked.notes)
            finite.append(clean.isfinite().all(-1))
            if check_consistency and first is None:
                first = x, clean
                notes |= dict.fromkeys(inconsistencies(model, *first))
            columns = {"clean_predicted": clean.argmax(-1), "robust_correct": ~attacked.fooled}
            columns["clean_correct"] = columns["clean_predicted"] == y
            if recheck:
                predicted = clean.argmax(-1)
                if attacks:
                    perturbed = logits_of(model, ball.apply(x, attacked.delta))
                    predicted = perturbed.argmax(-1)
                    finite[-1] &= perturbed.isfinite().all(-1)
                    cost.forward_passes += len(x)
                columns |= {"predicted": predicted, "robust_correct": predicted == y}
            if with_loss:
                assert attacked.loss is not None
                finite[-1] &= attacked.loss.isfinite()
                columns |= {"clean_loss": cross_entropy(clean, y), "robust_loss": attacked.loss}
            if keep_delta:
                columns["delta"] = attacked.delta
            if attacked.queries is not None:
                columns["queries"] = attacked.queries
            found.append({name: column.cpu() for name, column in columns.items()})
            counted.end()
        if first is not None and len(found) > 1:  # state that other images changed
            notes |= dict.fromkeys(inconsistencies(model, *first))
    parts = processes.gather((found, [one.cpu() for one in finite], notes))
    check_finite(torch.cat([one for _, finite, _ in parts for one in finite]))
    return Evaluation(
        index=images.index.cpu(),
        y=images.y.cpu(),
        **concatenated([columns for found, _, _ in parts for columns in found]),
        cost=processes.total(cost, device_and_dtype(model)[0]),
        seconds=time.perf_counter() - began,
        notes=tuple(dict.fromkeys(note for _, _, notes in parts for note in notes)),
        classes=classes,
        population=population or len(images),
    )


def _untouched(x: Tensor, wrong: Tensor, attack: Attack) -> AttackResult:
    """The result of no attack."""
    nothing = torch.zeros(len(x), dtype=torch.int64)
    queries = nothing if attack.black_box else None
    return AttackResult(delta=torch.zeros_like(x), fooled=wrong, loss=None, cost=Cost(), queries=queries)


class NonFiniteLogits(InputError):
    """A model whose logits are NaN or infinite: it has no prediction for these images."""


def check_finite(finite: Tensor, images: str = "images") -> None:
    """Refuse a model whose logits are not finite for some images, with how many; ``images`` says which they are."""
    if bad := int((~finite).sum()):
        raise NonFiniteLogits(
            f"the model's logits are NaN or infinite for {bad} of {len(finite)} {images}, and it has no answer there: "
            "check its weights, and its forward pass for a division by zero or a logarithm"
        )


@contextmanager
def named(model: str) -> Iterator[None]:
    """A model that is refused inside is named."""
    try:
        yield
    except NonFiniteLogits as error:
        raise NonFiniteLogits(f"{model}: {error}") from None


FAILED = "sanity check failed"
"""How a note begins that says so."""


def inconsistencies(model: Model, x: Tensor, logits: Tensor) -> list[str]:
    """Warnings about logits that are no function of the image: they differ the second time, or in a smaller batch."""
    some = (len(x) + 1) // 2
    again, smaller = logits_of(model, x), logits_of(model, x[:some])
    tolerance = max(1e-3, 4 * torch.finfo(logits.dtype).eps) * (1 + logits.abs().amax())
    if bool(((again - logits).abs() > tolerance).any()):
        return [
            f"{FAILED}: the model gives other logits for the same images the second time; it is random or "
            "keeps state, and attacks that take it for fixed overestimate its robustness"
        ]
    if bool(((smaller - logits[:some]).abs() > tolerance).any()):
        return [
            f"{FAILED}: the logits of an image depend on the other images of its batch; the accuracy holds "
            "for these batches only"
        ]
    return []


@torch.no_grad()
def logits_of(model: Model, x: Tensor) -> Tensor:
    """The logits of the model, without a gradient."""
    logits: Tensor = model(x)
    return logits


def joined(parts: Sequence[Evaluation], *, population: int | None = None) -> Evaluation:
    """Evaluations of the parts of one sample as one; without a population they are all there is."""
    return replace(
        parts[0],
        **concatenated([part.tensors for part in parts]),  # type: ignore[arg-type]
        cost=Cost(
            gradient_evaluations=sum(part.cost.gradient_evaluations for part in parts),
            forward_passes=sum(part.cost.forward_passes for part in parts),
        ),
        seconds=sum(part.seconds for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        population=population or sum(len(part.y) for part in parts),
    )


class _Counted:
    """The model while an attack queries it for a batch; images are counted in proportion to the queries made.

    A batch of thousands of queries takes minutes. Where their number is unknown, its images count at the end.
    """

    def __init__(self, f: Model, queries: int | None, images: int, progress: Progress | None) -> None:
        self.f = f
        self.queries = queries
        self.images = images
        self.progress = progress
        self.calls = self.counted = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.queries is not None:
            self._count(min(self.images * self.calls // self.queries, self.images))
        return self.f(x)

    def end(self) -> None:
        """Count all images as done, however few queries they took."""
        self._count(self.images)

    def _count(self, done: int) -> None:
        if self.progress is not None and done > self.counted:
            self.progress(done - self.counted)
            self.counted = done


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageBatch:
    """Some images on the model's device and in its dtype; the draws follow each image, not the batch."""

    rows: Tensor
    x: Tensor
    y: Tensor
    rng: ImageRng


def image_batches(
    model: nn.Module,
    images: Images,
    size: int,
    *,
    seed: int = 0,
    rows: Tensor | None = None,
    augment: Augmentation | None = None,
) -> Iterator[ImageBatch]:
    """The images (or those at ``rows``) in turn."""
    device, dtype = device_and_dtype(model)
    rows = torch.arange(len(images)) if rows is None else rows
    parts = torch.split(rows, min(size, len(rows))) if len(rows) else ()
    make = partial(viewed, images, seed, augment)
    with closing(images.ahead(make, parts)) as views:
        for part, (x, y) in zip(parts, views, strict=True):
            x = in_unit_box(to_device(x, device)).to(dtype)
            yield ImageBatch(rows=part, x=x, y=to_device(y, device), rng=_rng(images, seed, part))


def viewed(images: Images, seed: int, augment: Augmentation | None, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Images and labels as they are stored, in whatever process."""
    return images.view(rows, augment, _rng(images, seed, rows))


def _rng(images: Images, seed: int, rows: Tensor) -> ImageRng:
    return ImageRng(seed, images.index[rows.to(images.index.device)].tolist())


def concatenated(batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What was found of the images of each batch, by name, as one tensor for all images."""
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def device_and_dtype(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """The device and floating-point type of the model's weights; of a model without any: the CPU, float32."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            return tensor.device, tensor.dtype
    return torch.device("cpu"), torch.float32


def check_attack(attack: object) -> None:
    """An attack, not its name or class."""
    if isinstance(attack, type) or not callable(attack):
        raise wrong_type("attack", attack, "pass an attack, such as freeat.Pgd(steps=10)")
