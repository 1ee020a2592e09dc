"""Algorithms by the names people write: ``vanilla-10``, ``fast``, ``free-4``, ``trades-10``, ``free-trades-4``.

A name is a family (``erm``, ``vanilla``, ``fast``, ``n-fgsm``, ``free``, ``friendly``, or ``package.module:Class``;
``vanilla`` where only an objective is named), an objective (``trades``, ``alp``, ``mart``; cross-entropy where none is
named) and the number m of inner steps, in this order, joined by hyphens. What a family takes is what the fields of its
class declare.
"""

import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any, cast

import msgspec

from freeat.algorithms.step import Algorithm, WarmUp, check_members
from freeat.errors import ImportedOnUse, InputError, unknown_name
from freeat.models.imported import find_code, is_import_path
from freeat.objectives import OBJECTIVES, Objective, coefficient_of
from freeat.threat import STARTS, Ball

FAMILIES: Mapping[str, type[Algorithm]] = ImportedOnUse(
    erm="freeat.algorithms.erm:Erm",
    vanilla="freeat.algorithms.vanilla:Vanilla",
    fast="freeat.algorithms.fast:Fast",
    free="freeat.algorithms.free:Free",
    friendly="freeat.algorithms.friendly:Friendly",
    **{"n-fgsm": "freeat.algorithms.nfgsm:NFgsm"},
)
PGD_TRAINING = ("pgd", "pgd-at", "madry", "madry-at", "at")
"""Other names of Vanilla in the field."""
SHARED = ("ball", "m", "alpha", "start", "noise", "objective")
"""The fields that a name and the settings of a run give; a class's other fields are options of its own."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmName:
    """A parsed name; ``str`` gives its canonical form, with m written out for the built-in families."""

    family: str
    objective: str = "ce"
    m: int | None = None

    def __str__(self) -> str:
        parts = [self.objective] if self.objective != "ce" else []
        if self.family != "vanilla" or not parts:
            parts.insert(0, self.family)
        return "-".join([*parts, *([str(self.m)] if self.m is not None else [])])

    @property
    def imported(self) -> bool:
        """Whether its class is named by an import path."""
        return is_import_path(self.family)

    @property
    def adversarial(self) -> bool:
        """Whether it trains against a ball; assumed of a class that is not imported yet."""
        return self.imported or "ball" in declared(FAMILIES[self.family])

    @property
    def theorem(self) -> str | None:
        """The bound of the paper that covers it with the bounded loss; None where there is none."""
        return getattr(FAMILIES.get(self.family), "theorem", None)


def parse_algorithm(text: str) -> AlgorithmName:
    """The name read, with the default m of a built-in family filled in. Imports no code."""
    family: str | None = None
    if is_import_path(text):
        family, *parts = text.split("-")
        parts = [part.lower() for part in parts]
    else:
        rest = text.lower().replace("_", "-")
        family = next((known for known in FAMILIES if f"{rest}-".startswith(f"{known}-")), None)
        parts = [] if rest == family else rest.removeprefix(f"{family}-").split("-")
    objective = parts.pop(0) if parts and parts[0] in OBJECTIVES and parts[0] != "ce" else "ce"
    m = parse_steps(parts.pop(0), text) if parts and parts[0].isdecimal() else None
    if parts or (family is None and objective == "ce"):
        raise _unknown_algorithm(text)
    if m == 0:
        raise InputError(f"algorithm {text!r}: the number of steps must be at least 1")
    name = AlgorithmName(family=family or "vanilla", objective=objective, m=m)
    return name if name.imported else _with_default_m(name, FAMILIES[name.family])


def _unknown_algorithm(text: str) -> InputError:
    """The error for a name that is none, with ours where it is another name of PGD adversarial training."""
    name, _, m = text.lower().replace("_", "-").rpartition("-")
    other, m = (name, m) if m.isdecimal() else (f"{name}-{m}".removeprefix("-"), "")
    if other not in PGD_TRAINING:
        return unknown_name("algorithm", text, example_names())
    meant = f"vanilla-{m}" if m else str(parse_algorithm("vanilla"))
    why = "Vanilla is PGD adversarial training (Madry et al.); "
    return unknown_name("algorithm", text, example_names(), meant=meant, why=why)


def parse_steps(number: str, text: str) -> int:
    """The number of steps in a name."""
    if len(number) > 6:
        raise InputError(f"{text[:60]!r}: the number of steps must be less than a million")
    return int(number)


def _with_default_m(name: AlgorithmName, cls: type[Algorithm]) -> AlgorithmName:
    counted = declared(cls).get("m")
    if name.m is not None and counted is None:
        raise InputError(
            f"algorithm {str(name)!r}: {name.family} takes no number of steps; write {name.family!r}"
        )
    if name.m is not None or counted is None or not isinstance(counted.default, int):
        return name
    return replace(name, m=counted.default)


def algorithm_class(name: AlgorithmName, *, trust_code: bool = False) -> type[Algorithm]:
    """The class of a name; one that is named by an import path is imported only with the user's trust."""
    if not name.imported:
        return FAMILIES[name.family]
    cls = find_code(name.family, kind="algorithm", trust_code=trust_code)
    if not isinstance(cls, type) or not is_dataclass(cls):
        raise InputError(
            f"algorithm {name.family!r} is no dataclass: declare what it takes as fields of a frozen dataclass, as "
            "CONTRIBUTING.md shows"
        )
    check_members(repr(name.family), cls)
    return cast("type[Algorithm]", cls)


def declared(cls: type[Algorithm]) -> dict[str, Field[Any]]:
    """What a class takes: its fields by name."""
    return {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]


def options_of(cls: type[Algorithm]) -> dict[str, Any]:
    """A class's own options with their types: the fields that hold a plain value and are not shared."""
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in declared(cls) if name not in SHARED and _plain(hints[name])}


def settings_of(name: AlgorithmName, *, trust_code: bool = False) -> frozenset[str]:
    """What may be set of an algorithm beyond its name: the shared settings that it takes, and its own options."""
    cls = algorithm_class(name, trust_code=trust_code)
    takes = declared(cls)
    shared = {setting: setting in takes for setting in ("alpha", "start", "noise")}
    shared["warmup"] = "ball" in takes
    shared["coefficient"] = coefficient_of(OBJECTIVES[name.objective]) is not None
    return frozenset(setting for setting, taken in shared.items() if taken) | options_of(cls).keys()


def _refuse(name: AlgorithmName, foreign: Mapping[str, object], takes: Iterable[str]) -> None:
    """Refuse the settings that an algorithm does not take, if there are any."""
    if foreign:
        shown = ", ".join(f"{setting} = {value}" for setting, value in foreign.items())
        them = "it" if len(foreign) == 1 else "them"
        known = ", ".join(sorted(takes))
        raise InputError(
            f"{shown}: algorithm {str(name)!r} does not take {them}{f', only {known}' if known else ''}; "
            f"leave {them} out"
        )


def make_algorithm(
    name: str,
    ball: Ball,
    *,
    alpha: float | None = None,
    start: str | None = None,
    noise: float | None = None,
    objective: Objective | None = None,
    warmup_updates: int = 0,
    trust_code: bool = False,
    **options: object,
) -> Algorithm:
    """The algorithm of that name against ``ball``; what is None follows from the name, the norm and ε.

    Args:
        name: a name such as ``vanilla-10``, ``fast``, ``free-4``, ``trades-10`` or ``free-trades-4``, or an import
            path, ``package.module:Class``.
        ball: the set Δ of perturbations; ``erm`` does not use it.
        alpha: the length of an attack step, in input units.
        start: where δ starts: ``uniform``, ``radius``, ``gaussian`` or ``zero``.
        noise: the noise k of N-FGSM, in radii.
        objective: replaces the named one, to give it another coefficient.
        warmup_updates: the weight updates over which the radius grows from 0; 0 for none.
        trust_code: import the class of an import path, which runs its code.
        options: the algorithm's own, such as Friendly's ``tau`` or Free's ``carry``.

    Returns:
        The algorithm, ready to ``step``.

    Raises:
        InputError: the name is unknown, a value is out of range, the class does not declare a setting, or an
            import path is given without ``trust_code``.

    Example:
        >>> import freeat
        >>> free = freeat.make_algorithm("free-4", freeat.L2(0.5), carry=True)
        >>> free.m, free.step_size, free.carry
        (4, 0.5, True)
    """
    parsed = parse_algorithm(name)
    cls = algorithm_class(parsed, trust_code=trust_code)
    if start is not None and start not in STARTS:
        raise unknown_name("start", start, STARTS)
    if parsed.imported:
        parsed = _with_default_m(parsed, cls)
    settings = settings_of(parsed, trust_code=trust_code)
    given = {"alpha": alpha, "start": start, "noise": noise, "warmup": warmup_updates or None}
    _refuse(parsed, {n: v for n, v in given.items() if v is not None and n not in settings}, settings)
    takes = declared(cls)
    if objective is None and (parsed.objective != "ce" or not parsed.imported):
        objective = OBJECTIVES[parsed.objective]()
    if objective is not None and "objective" not in takes:
        raise InputError(f"algorithm {name!r} has a loss of its own: it takes no objective")
    usual = getattr(cls, "starts", {}).get(parsed.objective)
    shared: dict[str, object] = {"ball": ball, "m": parsed.m, "alpha": alpha, "start": start or usual}
    shared |= {"noise": noise, "objective": objective}
    values = {field: value for field, value in shared.items() if field in takes and value is not None}
    algorithm = _made(parsed, cls, values | read_options(parsed, options, trust_code=trust_code))
    return WarmUp(algorithm=algorithm, updates=warmup_updates) if warmup_updates else algorithm


def _made(name: AlgorithmName, cls: type[Algorithm], values: Mapping[str, object]) -> Algorithm:
    try:
        return cls(**values)
    except InputError:
        raise
    except Exception as error:  # a user's class may fail in any way
        raise InputError(
            f"algorithm {str(name)!r} cannot be made: {type(error).__name__}: {error}; check --algorithm-args"
        ) from error


def read_options(
    name: AlgorithmName, options: Mapping[str, object], *, trust_code: bool = False
) -> dict[str, object]:
    """Options of an algorithm's own as the types that its class declares; another value is refused."""
    cls = algorithm_class(name, trust_code=trust_code)
    known = options_of(cls)
    _refuse(name, {option: value for option, value in options.items() if option not in known}, known)
    read = {}
    for option, value in options.items():
        try:
            read[option] = msgspec.convert(value, known[option])
        except msgspec.ValidationError as error:
            raise InputError(f"{option} = {value!r} of algorithm {str(name)!r}: {error}") from None
    return read


def changed_options(name: AlgorithmName, options: Mapping[str, object]) -> dict[str, object]:
    """The options that differ from the defaults of a built-in class; all of another, which is not imported here."""
    if name.imported:
        return dict(options)
    defaults = declared(FAMILIES[name.family])
    read = read_options(name, options)
    return {option: value for option, value in read.items() if value != defaults[option].default}


def _plain(hint: Any) -> bool:
    """Whether a value of this type can be written as text."""
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    plain = (bool, int, float, str, type(None))
    return all(part in plain or typing.get_origin(part) is typing.Literal for part in parts)


def summary_of(cls: type[Algorithm]) -> str:
    """The first line of a class's docstring."""
    return (inspect.getdoc(cls) or "").partition("\n")[0].replace("``", "").rstrip(".")


def example_names() -> dict[str, str]:
    """The names shown to a newcomer: every family, and those of the paper with every objective; every m ≥ 1 works."""
    named = {family: str(parse_algorithm(family)) for family in FAMILIES}
    shown = {named[family]: summary_of(cls) for family, cls in FAMILIES.items()}
    for objective in OBJECTIVES:
        for family in ("vanilla", "free") if objective != "ce" else ():
            name = str(parse_algorithm(f"{family}-{objective}"))
            shown[name] = f"{named[family]} with the {objective.upper()} loss"
    return shown
