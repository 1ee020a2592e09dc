"""Sweeps as they are planned: which models go through which attacks, in which balls, on which images."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from freeat.attacks.autoattack import AutoAttack, Fab, PyAutoAttack
from freeat.attacks.result import Attack
from freeat.data import Augmentation, DataSet, Images, parse_augmentation
from freeat.errors import InputError, unknown_name
from freeat.evaluation.evaluate import BATCH
from freeat.evaluation.evaluator import SPLITS
from freeat.runs.build import build_images, evaluation_attack
from freeat.runs.open import Opened
from freeat.runs.results import SEMANTICS, Identity, attack_identity, settings_of
from freeat.runs.spec import EvalSpec
from freeat.threat import Ball, make_ball
from freeat.units import radius_text

OTHER_DATA = (
    "evaluate it on others with `freeat evaluate --data`: its test images may have become training images"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Condition:
    """One attack in one ball on images of one split, which has ``population`` of them."""

    split: str
    images: Images
    population: int
    augment: Augmentation | None
    attack: Attack
    ball: Ball

    def title(self, model: str) -> str:
        """A line for the progress."""
        return f"{model}: {self.attack.name}, {self.ball.norm} ε = {radius_text(self.ball.eps)}, {self.split}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep:
    """What every model goes through: each attack in each ball, on ``n`` images (None: all) of each split.

    These are ``Images.sample(n)``, by which a run is evaluated in training too. The training images of a run are those
    it was trained on, not all that its data set has. ``train_augmented`` is the view of them that it was trained on; it
    and ``validation`` are left out of models that have none. ``with_loss`` and ``recheck`` are those of ``evaluate``.
    """

    data: DataSet
    attacks: tuple[Attack, ...]
    balls: tuple[Ball, ...]
    splits: tuple[str, ...] = ("test",)
    n: int | None = None
    seed: int = 0
    batch_size: int = BATCH
    with_loss: bool = False
    recheck: bool = True
    _found: dict[tuple[object, ...], tuple[Images, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for split in self.splits:
            if split not in SPLITS:
                raise unknown_name("split", split, SPLITS)
        if self.n is not None and self.n < 1:
            raise InputError(f"-n {self.n}: evaluate at least 1 image")
        if self.batch_size < 1:
            raise InputError(f"batch size {self.batch_size}: must be at least 1")
        for ball in self.balls:
            ball.check(self.data.shape)

    def splits_of(self, model: Opened) -> tuple[str, ...]:
        """The splits on which a model can be evaluated."""
        lacking = set()
        if self._augmentation(model) is None:
            lacking.add("train_augmented")
        if not (self._is_own_data(model) and model.spec is not None and model.spec.validation):
            lacking.add("validation")
        return tuple(split for split in self.splits if split not in lacking)

    def images(self, split: str, model: Opened) -> tuple[Images, int]:
        """The images of a split on which a model is evaluated, and how many the split has.

        They are the same object each time and for all models that were trained on the same images: it has its digest.
        """
        spec = model.spec if split != "test" and self._is_own_data(model) else None
        of_run = None if spec is None else (spec.validation, spec.train_size)
        key = ("train" if split == "train_augmented" else split, of_run)
        if key not in self._found:
            whole = self._whole(split, model)
            self._found[key] = whole.sample(self.n), len(whole)
        return self._found[key]

    def _whole(self, split: str, model: Opened) -> Images:
        if split == "test":
            return self.data.test
        if model.spec is None or not self._is_own_data(model):
            return self.data.train
        train, validation = build_images(model.spec, self.data)
        return validation if split == "validation" and validation is not None else train

    def _is_own_data(self, model: Opened) -> bool:
        return model.trained_on is not None and model.trained_on.is_same(self.data)

    def _augmentation(self, model: Opened) -> Augmentation | None:
        if model.spec is None or not self._is_own_data(model):
            return None
        return parse_augmentation(model.spec.augment, self.data.augment)

    def notes(self, model: Opened, split: str) -> tuple[str, ...]:
        """What a report of this model must say about its images of a split."""
        if model.trained_on is not None and not self._is_own_data(model):
            return (*self.data.notes, f"{model.name} was trained on other data than {self.data.name}.")
        if split == "train" and model.spec is None:
            unknown = f"Which images {model.name} was trained on is not known: all training images are taken for it."
            return (*self.data.notes, unknown)
        return self.data.notes

    def conditions(self, model: Opened, *splits: str) -> Iterator[Condition]:
        """Every split (or those named), attack and radius in turn."""
        for split in splits or self.splits_of(model):
            images, population = self.images(split, model)
            augment = self._augmentation(model) if split == "train_augmented" else None
            for attack in self.attacks:
                for ball in self.balls:
                    yield Condition(
                        split=split,
                        images=images,
                        population=population,
                        augment=augment,
                        attack=attack,
                        ball=ball,
                    )

    def identity(self, kind: str, model: Opened, condition: Condition) -> Identity:
        """All that the result of a model under one condition depends on."""
        attack = condition.attack
        identity = self.identity_on(kind, model, condition.split, condition.images, condition.augment)
        identity |= {"attack": attack_identity(attack), **self.identity_in(condition.ball)}
        if isinstance(attack, AutoAttack | Fab | PyAutoAttack) and attack.package is not None:
            identity |= {"package": attack.package}
        if isinstance(attack, PyAutoAttack):  # it draws for whole batches
            identity |= {"batch_size": self.batch_size}
        return identity

    def identity_on(
        self, kind: str, model: Opened, split: str, images: Images, augment: Augmentation | None = None
    ) -> Identity:
        """What every result of a model on these images depends on."""
        return {
            "semantics": SEMANTICS,
            "kind": kind,
            "weights": model.digest,
            "architecture": architecture(model),
            "split": split,
            "images": images.digest,
            "index": hashlib.sha256(images.index.cpu().numpy().tobytes()).hexdigest(),
            "augment": None if augment is None else {"name": type(augment).__name__, **settings_of(augment)},
        }

    def identity_in(self, ball: Ball) -> Identity:
        """What every result in a ball depends on."""
        return {
            "ball": {"norm": ball.norm, **settings_of(ball)},
            "seed": self.seed,
            "with_loss": self.with_loss,
        }


def as_trained(model: Opened, data: DataSet, evaluation: EvalSpec) -> Sweep:
    """The sweep that evaluates a run as its training did: its own attack and radius, every split, with losses."""
    assert model.spec is not None  # of a run
    return Sweep(
        data=data,
        attacks=(evaluation_attack(evaluation),),
        balls=(make_ball(model.spec.norm, evaluation.radius(model.spec)),),
        splits=SPLITS,
        n=evaluation.final_size,
        seed=model.spec.seed,
        with_loss=True,
        recheck=False,  # the attack of a training run decides in fp32 itself
    )


def architecture(model: Opened) -> str:
    """A digest of the model's layers as torch prints them and of what made them.

    The same weights in other layers are another model, and a factory's arguments need not show in its layers.
    """
    return hashlib.sha256(f"{model.model!r}{model.made_by}".encode()).hexdigest()
