"""The settings of a run as frozen values, the same in YAML, on the command line and in Python.

``TrainSpec`` is what determines the weights; its hash is the run's identity. ``EvalSpec`` says how the model is
evaluated while it trains and at the end; it changes no weight.
"""

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Self

import msgspec
import yaml

from freeat.errors import InputError, unknown_name
from freeat.files.documents import identity_of
from freeat.files.reading import LARGEST_SETTINGS, parse_yaml, read_text
from freeat.units import LARGEST_COUNT, LARGEST_NUMBER, parse_finite, parse_radius, parse_whole

SEMANTICS = 3
"""Raised whenever the same spec would give other numbers."""

DEFAULT_EPOCHS = 30.0
"""How long a run is where neither epochs nor updates are given."""


def _setting(default: Any, help: str, parse: Callable[[Any], Any] | None = None, **unhashed: Any) -> Any:
    """A setting; its identity leaves out ``unhashed``, by default the default."""
    return field(default=default, metadata={"help": help, "parse": parse, **unhashed})


class _Settings:
    """Reading, checking and listing the settings of a spec; shared by the two kinds."""

    @classmethod
    def fields(cls) -> dict[str, Field[Any]]:
        """The settings by name, with their default, help text and parser."""
        return {f.name: f for f in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """From settings as people write them: fractions, numbers as text; unknown ones are refused."""
        known = cls.fields()
        hints = typing.get_type_hints(cls)
        values = {}
        for name, value in settings.items():
            if name not in known:
                raise unknown_name("setting", name, known)
            parse = known[name].metadata.get("parse")
            try:
                values[name] = parse(value) if parse and value is not None else _typed(value, hints[name])
            except InputError as error:
                raise InputError(f"{name}: {error}") from None
        return cls(**values)

    def settings(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        return {
            name: getattr(self, name)
            for name, f in self.fields().items()
            if f.default is MISSING or getattr(self, name) != f.default
        }

    def differences(self, other: Self) -> list[tuple[str, Any, Any]]:
        """The settings in which another spec of this kind differs, each with both values."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.fields())
        return [(name, own, its) for name, own, its in pairs if own != its]

    def _check(self, rules: Iterable[tuple[str, bool, str]]) -> None:
        """Refuse the first setting that is beyond all measure, or whose rule does not hold."""
        for name in self.fields():
            value = getattr(self, name)
            if isinstance(value, float) and not abs(value) <= LARGEST_NUMBER:
                raise InputError(
                    f"--{name.replace('_', '-')} {value} must be finite and at most {LARGEST_NUMBER:g}"
                )
            if isinstance(value, int) and abs(value) > LARGEST_COUNT and name != "seed":
                raise InputError(
                    f"--{name.replace('_', '-')} {str(value)[:40]} must be at most {LARGEST_COUNT}"
                )
        for name, holds, rule in rules:
            if not holds:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)} {rule}")


@dataclass(frozen=True, kw_only=True)
class TrainSpec(_Settings):
    """Everything that determines the weights of a trained model."""

    data: str = _setting(
        "digits",
        "data set by name (see `freeat data list`), or an .npz file, image folder, tar shards, or 🤗 parquet or arrow "
        "files",
    )
    train_size: int | None = _setting(None, "train on a nested random subset of this many images")
    validation: float = _setting(
        0.0, "hold out this part of the training images (a fraction or a count), the same for every seed"
    )
    augment: str = _setting(
        "auto",
        "auto, none, crop, flip, crop-flip or random-resized-crop; auto: as is customary for the data set",
    )
    image_size: int | None = _setting(None, "side that images of a folder are resized to")
    skip_unreadable: bool = _setting(
        False, "leave out images of a folder that cannot be read, and say how many"
    )
    stream: bool = _setting(
        False,
        "keep no decoded images: decode those of each batch from their files, from which random-resized-crop then cuts",
    )
    model: str = _setting(
        "auto",
        "network by name (see `freeat models`), timm:NAME, torchvision:NAME, package.module:factory, or auto: that of "
        "--init-from, else cnn for images up to 16 pixels, resnet18 up to 32, resnet18-s2 up to 64, resnet18-s4 above",
        unhashed="resnet18",
    )
    model_args: Mapping[str, Any] | None = _setting(
        None,
        "arguments of a factory or of a timm: or torchvision: network, as JSON or key=value,…; pretrained=true: with "
        "its published weights",
    )
    normalize: str | None = _setting(
        None,
        "normalization put in front of the model: a data set's, or mean=…;std=…; default: none, and that of the "
        "published weights for timm: and torchvision: networks",
    )
    init_from: str | None = _setting(
        None,
        "begin with the weights of this run folder, exported folder, weights file (.safetensors, .pt) or model on the "
        "Hugging Face Hub (hf://NAME@COMMIT); a head for other classes is new",
    )
    algorithm: str = _setting(
        "free-4", "training algorithm (see `freeat algorithms`), e.g. free-trades-4, or package.module:Class"
    )
    algorithm_args: Mapping[str, Any] | None = _setting(
        None,
        "options of the algorithm's own, as JSON or key=value,…, e.g. carry=true (Free), tau=2 (Friendly)",
    )
    norm: str = _setting("linf", "norm of the perturbations: l2 or linf")
    eps: float = _setting(
        None,
        "radius of the perturbations in input units  [default: 8/255 for linf, 128/255 for l2]",
        parse_radius,
        unhashed=8 / 255,
    )
    alpha: float | None = _setting(
        None, "step of the training attack; default by algorithm and norm", parse_radius
    )
    start: str | None = _setting(None, "start of the training attack: uniform, radius, gaussian or zero")
    noise: float | None = _setting(
        None, "noise k of n-fgsm, in radii  [default: 2 for linf, 2/√3 for l2]", parse_finite
    )
    box: bool = _setting(True, "keep perturbed images in [0, 1]")
    coefficient: float | None = _setting(
        None, "λ of TRADES (1/6), weight of ALP (0.5) or MART (5)", parse_finite
    )
    label_smoothing: float = _setting(
        0.0, "spread this part of every label over all classes in the training loss, e.g. 0.1"
    )
    warmup: float = _setting(0.0, "let ε grow from 0 over this part of the training, e.g. 0.2")
    epochs: float | None = _setting(
        None,
        f"epochs at one update per batch: T = epochs·batches per epoch  [default: {DEFAULT_EPOCHS:g}]",
    )
    updates: int | None = _setting(None, "weight updates T, instead of --epochs")
    batch_size: int = _setting(128, "images per batch")
    sampling: str = _setting(
        "epochs", "epochs (each image once per epoch, shuffled) or independent (each batch drawn anew)"
    )
    replay: int = _setting(
        1,
        "use each batch this many times in a row, as Free does, with new starts of the attack; "
        "--epochs and --updates still count weight updates",
    )
    optimizer: str = _setting("sgd", "sgd or adamw")
    lr: float = _setting(0.1, "learning rate; for the vanishing schedule, the theorems' c")
    schedule: str = _setting(
        "piecewise",
        "piecewise (÷10 at T/2, 3T/4), constant, cyclic, cosine, one-cycle, vanishing (c/t, c/(mt))",
    )
    momentum: float = _setting(0.9, "momentum of SGD")
    weight_decay: float = _setting(2e-4, "weight decay")
    clip_grad: float | None = _setting(None, "shorten longer gradients of the weights to this length, e.g. 1")
    awp: float = _setting(
        0.0, "adversarial weight perturbation of relative size γ, e.g. 0.01; one more pass per update"
    )
    awp_from: float = _setting(0.0, "epoch (at one update per batch) at which --awp begins")
    proximal: float | None = _setting(
        None,
        "Moreau-envelope training: draw the weights to slow ones by (ρ/2)‖w − u‖², e.g. 5e-4; 0: --swa",
        parse_finite,
    )
    proximal_from: float | None = _setting(
        None, "epoch at which --proximal or --swa begins  [default: half of the training]"
    )
    proximal_every: float = _setting(1.0, "epochs between two weights that the slow weights take in")
    swa: bool = _setting(False, "stochastic weight averaging: --proximal 0")
    ema: float | None = _setting(
        None, "also keep an exponential average of the weights with this decay, e.g. 0.999"
    )
    micro_batch: int | None = _setting(
        None, "compute a batch's gradients this many images at a time, to save memory"
    )
    seed: int = _setting(0, "seed of every random draw; it chooses no images")
    precision: str = _setting("fp32", "fp32, bf16, fp16, or auto (bf16 where the hardware has it)")
    threads: int | None = _setting(None, "CPU threads of the run; another number gives other bits")
    deterministic: bool = _setting(
        True, "same bits every time (--deterministic), or whatever is fastest (--nondeterministic)"
    )
    compile: bool = _setting(False, "compile the network with torch.compile")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """From settings as people write them; options that are the algorithm's defaults are left out."""
        from freeat.algorithms.registry import changed_options, parse_algorithm

        spec = super().of(settings)
        changed = changed_options(parse_algorithm(spec.algorithm), spec.algorithm_args or {})
        return replace(spec, algorithm_args=changed or None)

    def __post_init__(self) -> None:
        from freeat.algorithms.registry import parse_algorithm, read_options
        from freeat.threat import DEFAULT_EPS, NORMS, STARTS

        name = parse_algorithm(self.algorithm)
        object.__setattr__(self, "algorithm", str(name))
        if self.algorithm_args is not None and not name.imported:
            object.__setattr__(self, "algorithm_args", read_options(name, self.algorithm_args) or None)
        object.__setattr__(self, "norm", self.norm.lower())
        if self.norm not in NORMS:
            raise unknown_name("norm", self.norm, NORMS)
        if vars(self)["eps"] is None:  # it is not given
            object.__setattr__(self, "eps", DEFAULT_EPS[self.norm])
        if self.start is not None and self.start not in STARTS:
            raise unknown_name("start", self.start, STARTS)
        object.__setattr__(self, "data", str(self.data))
        if self.swa:
            if self.proximal:
                raise InputError(f"both --swa and --proximal {self.proximal:g} given: --swa is --proximal 0")
            object.__setattr__(self, "proximal", 0.0)
            object.__setattr__(self, "swa", False)
        if self.epochs is not None and self.updates is not None:
            raise InputError(f"both --epochs {self.epochs:g} and --updates {self.updates} given: choose one")
        ranges = [
            ("eps", self.eps > 0, "must be positive; to train without an adversary use --algorithm erm"),
            ("epochs", self.epochs is None or self.epochs > 0, "must be positive"),
            ("updates", self.updates is None or self.updates >= 1, "must be at least 1"),
            ("batch_size", self.batch_size >= 1, "must be at least 1"),
            ("replay", self.replay >= 1, "must be at least 1"),
            ("train_size", self.train_size is None or self.train_size >= 2, "must be at least 2"),
            ("data", bool(self.data.strip()), "must name a data set, an .npz file or a folder"),
            (
                "validation",
                0 <= self.validation < 1 or (self.validation >= 1 and self.validation % 1 == 0),
                "must be a fraction such as 0.1, or a whole number of images",
            ),
            ("warmup", 0 <= self.warmup <= 1, "is a part of the training, between 0 and 1"),
            ("lr", self.lr > 0, "must be positive"),
            (
                "lr",
                self.optimizer != "adamw" or max(1, self.weight_decay) * self.lr <= 1e30,
                "is too large for AdamW: it and its product with the weight decay may be at most 1e30",
            ),
            ("momentum", 0 <= self.momentum < 1, "must lie in [0, 1)"),
            ("weight_decay", self.weight_decay >= 0, "must not be negative"),
            ("noise", self.noise is None or self.noise >= 0, "must not be negative; 2 is usual"),
            ("label_smoothing", 0 <= self.label_smoothing < 1, "must lie in [0, 1); 0.1 is usual"),
            ("clip_grad", self.clip_grad is None or self.clip_grad > 0, "must be positive; 1 is usual"),
            ("awp", 0 <= self.awp < 1, "must lie in [0, 1); 0.01 is usual, 0.005 for TRADES"),
            ("awp_from", self.awp_from >= 0, "must not be negative"),
            ("proximal", self.proximal is None or self.proximal >= 0, "must not be negative; 5e-4 is usual"),
            ("proximal_from", self.proximal_from is None or self.proximal_from >= 0, "must not be negative"),
            ("proximal_every", self.proximal_every > 0, "must be positive"),
            ("ema", self.ema is None or 0 <= self.ema < 1, "must lie in [0, 1); 0.999 is usual"),
            ("threads", self.threads is None or 1 <= self.threads <= 1024, "must lie between 1 and 1024"),
            ("seed", 0 <= self.seed < 2**63, "must lie between 0 and 2^63 − 1"),
        ]
        self._check(ranges)

    def settings(self) -> dict[str, Any]:
        """The settings that differ from their defaults; a radius in L2 is always among them."""
        found = super().settings()
        if self.norm == "linf" and self.eps == self.fields()["eps"].metadata["unhashed"]:
            del found["eps"]
        return found

    @property
    def label(self) -> str:
        """The algorithm and the parts that are on, as tables and figures name them: ``free-4 + awp + ema``."""
        return self.label_of("ema")

    def label_of(self, weights: str) -> str:
        """The label of one kind of the run's weights; an average that they are not a part of is left out."""
        values = {setting: getattr(self, setting) for setting, _ in PARTS.values()}
        on = {part: value for part, value in _parts_on(values) if part != "ema" or weights == "ema"}
        parts = [part if value is None else f"{part} {value:g}" for part, value in on.items()]
        return PLUS.join([short_name(self.algorithm), *parts])

    @property
    def weights(self) -> tuple[str, ...]:
        """The kinds of weights that a comparison shows: slow ones instead of the last, and the average beside them."""
        last = "model" if self.proximal is None else "slow"
        return (last,) if self.ema is None else (last, "ema")

    @property
    def begins_on_hub(self) -> bool:
        """Whether the weights to begin with are a model on the Hugging Face Hub."""
        return (self.init_from or "").startswith("hf://")

    @property
    def facts(self) -> Mapping[str, object]:
        """What determines the weights: the settings that differ from their first defaults, paths by their last part.

        A default that has changed since leaves the identities of runs as they are.
        Where files lie does not count. What they hold does: a run stores digests of its data and initial weights.
        """
        settings = {
            name: value
            for name, f in self.fields().items()
            if (value := getattr(self, name)) != f.metadata.get("unhashed", f.default)
        }
        for name in ("data", "init_from"):
            if name in settings:
                settings[name] = Path(settings[name]).name
        return {"semantics": SEMANTICS, **settings}

    @property
    def identity(self) -> str:
        """The hash that names the run."""
        return identity_of(self.facts)[:16]


PARTS: dict[str, tuple[str, float]] = {
    "awp": ("awp", 0.01),
    "label-smoothing": ("label_smoothing", 0.1),
    "clip-grad": ("clip_grad", 1.0),
    "proximal": ("proximal", 5e-4),
    "swa": ("proximal", 0.0),
    "ema": ("ema", 0.999),
}
"""What can be added to any algorithm, by the names that tables use: the setting and its usual value."""
PLUS = " + "
"""Between an algorithm and its parts in a label."""


def _parts_on(values: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """The parts that settings switch on, each with its value where that is not the usual one."""
    defaults = {name: field.default for name, field in TrainSpec.fields().items()}
    found: list[tuple[str, float | None]] = []
    for part, (setting, usual) in PARTS.items():
        value = values.get(setting, defaults[setting])
        chosen = setting != "proximal" or (part == "swa") == (value == 0)
        if chosen and value != defaults[setting]:
            found.append((part, None if value == usual else value))
    return found


def parse_parts(text: str) -> dict[str, float]:
    """Parts as people write them (``awp``, ``awp=0.005+ema``, ``none``): their settings."""
    found: dict[str, float] = {}
    for part in (part.strip().lower() for part in text.split("+")):
        name, given, value = part.partition("=")
        if part == "none":
            continue
        if name not in PARTS:
            raise unknown_name("part", name, ("none", *PARTS))
        setting, usual = PARTS[name]
        if name == "swa" and given:
            raise InputError(f"part {part!r}: swa has no value; it is proximal=0")
        if setting in found:
            raise InputError(f"parts {text!r}: {setting} is given twice; keep one of them")
        found[setting] = parse_finite(value) if given else usual
    return found


def split_parts(text: str) -> tuple[str, dict[str, float]]:
    """An algorithm with its parts, as ``free-4+awp+ema``: its name and the settings of the parts that are on."""
    name, _, parts = text.partition("+")
    settings, fields = parse_parts(parts) if parts else {}, TrainSpec.fields()
    return name.strip(), {
        setting: value for setting, value in settings.items() if value != fields[setting].default
    }


def canonical_parts(text: str) -> str:
    """An algorithm with its parts, written in one way: ``free-4+awp=0.005+ema``."""
    from freeat.algorithms.registry import parse_algorithm

    name, settings = split_parts(text)
    parts = [part if value is None else f"{part}={value:g}" for part, value in _parts_on(settings)]
    return "+".join([str(parse_algorithm(name)), *parts])


@dataclass(frozen=True, kw_only=True)
class EvalSpec(_Settings):
    """How a model is evaluated: while it trains, and at the end."""

    attack: str = _setting("pgd-10", "attack that measures robust accuracy, e.g. pgd-10, pgd-20")
    eval_eps: float | None = _setting(
        None, "radius it is evaluated at; default: the training radius", parse_radius
    )
    eval_alpha: float | None = _setting(
        None, "step of that attack; default a quarter of its radius", parse_radius
    )
    eval_start: str | None = _setting(
        None, "start of that attack: uniform, radius, gaussian or zero; default uniform"
    )
    iterate: str = _setting(
        "worst", "evaluate every iterate (worst) or the last one only, as the paper (last)"
    )
    eval_every: int | None = _setting(
        None, "evaluate at update 0 and every this many updates; default: 12 times"
    )
    eval_size: int | None = _setting(
        None,
        "images of each split used while training; default: 128, more where that is cheap, the same for all algorithms",
    )
    strength: bool = _setting(
        False,
        "at every evaluation also measure how strong the training attack is: ‖δ‖/ε, the increase of the loss",
    )
    final_size: int | None = _setting(None, "images of each split in the final evaluation; default: all")

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("eval_every", "eval_size", "final_size")}
        self._check((name, n is None or n >= 1, "must be at least 1") for name, n in counts.items())
        from freeat.threat import STARTS

        if self.eval_start is not None and self.eval_start not in STARTS:
            raise unknown_name("start", self.eval_start, STARTS)
        moves = self.eval_alpha is None or self.eval_alpha > 0
        self._check([("eval_alpha", moves, "must be positive, e.g. 2/255")])

    def radius(self, training: TrainSpec) -> float:
        """The radius at which a run of this training is evaluated."""
        return training.eps if self.eval_eps is None else self.eval_eps

    def with_settings(self, settings: Mapping[str, Any]) -> "EvalSpec":
        """This spec with other settings, as people write them.

        The step is dropped when the radius changes, and with the start when the attack does.
        """
        own = self.settings()
        dropped = {"eval_eps": ("eval_alpha",), "attack": ("eval_alpha", "eval_start")}
        for name in (name for setting in dropped.keys() & settings.keys() for name in dropped[setting]):
            own.pop(name, None)
        return EvalSpec.of({**own, **settings})


def short_name(algorithm: str) -> str:
    """An algorithm as tables and figures name it: of an import path, the class, with objective and m."""
    return algorithm.rpartition(":")[2]


def split_settings(settings: Mapping[str, Any]) -> tuple[TrainSpec, EvalSpec]:
    """Both specs from one flat set of settings; Friendly's step follows the radius it is evaluated at."""
    from freeat.algorithms.registry import FAMILIES, parse_algorithm

    of_train, of_eval = TrainSpec.fields(), EvalSpec.fields()
    for name in settings:
        if name not in of_train and name not in of_eval:
            raise unknown_name("setting", name, [*of_train, *of_eval])
    evaluation = EvalSpec.of({name: value for name, value in settings.items() if name in of_eval})
    training = TrainSpec.of({name: value for name, value in settings.items() if name in of_train})
    follows = getattr(FAMILIES.get(parse_algorithm(training.algorithm).family), "alpha_at", None)
    if follows is not None and training.alpha is None and evaluation.eval_eps is not None:
        training = replace(training, alpha=follows(evaluation.eval_eps))
    return training, evaluation


_NUMBERS: dict[Any, Callable[[object], float]] = {int: parse_whole, float: parse_finite}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _typed(value: Any, hint: Any) -> Any:
    """A value as the type of its setting; YAML and the command line give text or numbers."""
    options = typing.get_args(hint)
    if value is None and NoneType in options:
        return None
    kind = options[0] if NoneType in options else hint
    if kind in _NUMBERS and not isinstance(value, bool):
        return _NUMBERS[kind](value)
    if kind is str and isinstance(value, str | int | float | Path):
        return str(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise InputError(f"{value!r} must be {_KINDS.get(kind, 'key: value pairs')}") from None


YAML_LAYOUT = "write one `setting: value` per line"


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings of a YAML file by name; ``batch-size`` and ``batch_size`` are one."""
    text = read_text(path, limit=LARGEST_SETTINGS, wrong="is not YAML")
    try:
        root, settings = parse_yaml(text, path)
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML, {_described(error, text)}; {YAML_LAYOUT}") from None
    if root is None:
        return {}
    _refuse_twice(path, root)
    if not isinstance(settings, dict):
        raise InputError(f"{path} holds a {type(settings).__name__}, not settings: {YAML_LAYOUT}")
    return {setting_name(name): value for name, value in settings.items()}


def setting_name(written: object) -> str:
    """A setting's name as the specs spell it."""
    return str(written).replace("-", "_")


def _refuse_twice(path: Path, node: yaml.Node) -> None:
    """Refuse a key that a mapping holds twice, of which YAML would silently take the last."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = setting_name(key.value), key.start_mark.line + 1
            if name in lines:
                raise InputError(
                    f"{path}, line {line}: {key.value!r} is given again, after line {lines[name]}; keep one of them"
                )
            lines[name] = line
            _refuse_twice(path, value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_twice(path, item)


def _described(error: yaml.YAMLError, text: str) -> str:
    """The line of a mistake and what it is."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        return f"line {line}: {error.problem or error.context}"
    position = getattr(error, "position", 0)  # a character that YAML forbids
    return f"line {text[:position].count(chr(10)) + 1}: {getattr(error, 'reason', error)}"
