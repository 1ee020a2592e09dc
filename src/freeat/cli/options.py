"""Options that several commands share, and how their values are read."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.errors import InputError
from freeat.files.reading import DEEPEST, check_depth, check_text
from freeat.runs.spec import EvalSpec, TrainSpec, parse_parts, read_yaml
from freeat.units import parse_number, radius_text

if TYPE_CHECKING:
    from freeat.runs.run import RunOptions

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

FLAGS = {
    "skip_unreadable": "--skip-unreadable",
    "stream": "--stream",
    "box": "--box/--no-box",
    "deterministic": "--deterministic/--nondeterministic",
    "compile": "--compile",
    "strength": "--strength",
    "swa": "--swa",
}
"""The settings that are switches, and how they are written."""


def path_option(*names: str, **attributes: Any) -> Decorator:
    """An option that is the path of a file or folder."""
    return click.option(*names, type=click.Path(path_type=Path), **attributes)


def choice_option(name: str, *values: str, **attributes: Any) -> Decorator:
    """An option with a few possible values, of which the first is the default."""
    attributes = {"default": values[0], "show_default": True, **attributes}
    return click.option(name, type=click.Choice(values), **attributes)


json_option = click.option("--json", "as_json", is_flag=True, help="print the result as one JSON document")
device_option = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps")
data_dir_option = path_option("--data-dir", help="folder of the data sets (or $FREEAT_DATA)")
trust_code_option = click.option(
    "--trust-code", is_flag=True, help="allow importing code that a settings file or run folder names"
)
jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), help="runs at the same time  [default: as the cores allow]"
)
checkpoint_option = click.option(
    "--checkpoint-every", type=float, default=60.0, show_default=True, help="seconds between checkpoints"
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(min=0),
    help="processes that decode images, or read them ahead from a cache, of each run; they change no number  "
    "[default: half of the cores]",
)
on_collapse_option = choice_option(
    "--on-collapse", "warn", "stop", help="what to do on catastrophic overfitting"
)

RUN_OPTIONS: dict[str, Decorator] = {
    "device": device_option,
    "data_dir": data_dir_option,
    "checkpoint_every": checkpoint_option,
    "on_collapse": on_collapse_option,
    "trust_code": trust_code_option,
    "workers": workers_option,
}
"""How a run is executed, by the fields of ``RunOptions``; everything else about a run is a setting of its specs."""


def all_of(*options: Decorator) -> Decorator:
    """Several options as one decorator, listed by ``--help`` in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


run_options = all_of(*RUN_OPTIONS.values())


def print_result(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a command found: a typed value or dictionary as one JSON document, or lines of text."""
    from freeat.files.documents import plain, to_json

    click.echo(to_json(plain(document)) if as_json else "\n".join(lines))


def setting_options(*specs: type[TrainSpec] | type[EvalSpec], leave_out: tuple[str, ...] = ()) -> Decorator:
    """An option for every setting of the specs; one that is not given stays unset, so that a file's value holds."""
    settings = [item for spec in specs for item in spec.fields().items() if item[0] not in leave_out]
    return all_of(*(_setting_option(name, field.default, field.metadata["help"]) for name, field in settings))


PART_TIMES = ("awp_from", "proximal_from", "proximal_every")
"""The settings that say when the parts of ``--with`` begin, and how often slow weights take in the others."""


def time_options(command: Command) -> Command:
    """The options of ``PART_TIMES`` for a study, as in ``freeat train``."""
    others = tuple(name for name in TrainSpec.fields() if name not in PART_TIMES)
    return setting_options(TrainSpec, leave_out=others)(command)


def take_times(given: dict[str, Any]) -> dict[str, Any]:
    """Take the settings of ``PART_TIMES`` out of what was given; those that were not have their defaults."""
    typed = {name: value for name in PART_TIMES if (value := given.pop(name)) is not None}
    spec = TrainSpec.of(typed)
    return {name: getattr(spec, name) for name in typed}


def _setting_option(name: str, default: Any, text: str) -> Decorator:
    if name in FLAGS:
        return click.option(FLAGS[name], name, is_flag=True, default=None, help=text)
    if default not in (None, 0.0):
        text += f"  [default: {radius_text(default) if isinstance(default, float) else default}]"
    return click.option(f"--{name.replace('_', '-')}", name, default=None, help=text)


def gather_settings(given: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Settings from a YAML file, overridden by those given on the command line."""
    settings = read_yaml(file) if file is not None else {}
    settings |= {name: value for name, value in given.items() if value is not None}
    for name in ("model_args", "algorithm_args"):
        if isinstance(settings.get(name), str):
            settings[name] = parse_arguments(settings[name], f"--{name.replace('_', '-')}")
    return settings


def parse_arguments(text: str, option: str = "--model-args") -> dict[str, Any]:
    """Arguments of a model's factory or an algorithm: a JSON object, or ``depth=3,width=64``."""
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
            check_depth(values)
            check_text(text, values)
        except RecursionError:
            raise InputError(f"{option} is nested more than {DEEPEST} deep") from None
        except ValueError as error:
            raise InputError(f"{option} {text!r} is not JSON: {error}") from None
        assert isinstance(values, dict)
        return values
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(separator for _, separator, _ in pairs):
        raise InputError(f"{option} {text!r}: write key=value,… or a JSON object")
    return {key.strip(): _parse_value(value.strip()) for key, _, value in pairs}


def _parse_value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = parse_number(text)
    except InputError:
        return text
    return int(number) if number.is_integer() and "." not in text else number


def split_commas(text: str) -> list[str]:
    """The texts between commas, without spaces around them and without empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_list(given: Any, setting: str, remedy: str) -> list[str]:
    """Texts as one text with commas, or as a list in a settings file."""
    texts = given.split(",") if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{setting} {given!r}: write {remedy}")
    return [text.strip() for text in texts]


def typed_code(given: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether the user has typed every import path that is in effect, rather than left one to a file."""
    from freeat.models.imported import is_import_path

    paths = [
        name for name in ("model", "algorithm", "algorithms") if is_import_path(str(settings.get(name, "")))
    ]
    return bool(paths) and all(given.get(name) is not None for name in paths)


def trusts_code(flag: bool, names_code: bool) -> bool:
    """Whether code may be imported: with ``--trust-code``, or where the user has typed its import path.

    Then it is also found in the current folder, as ``python -m`` would find it.
    """
    trusted = flag or names_code
    if trusted and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return trusted


def split_run_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the specs, and the run options, out of all that was given."""
    settings = {name: value for name, value in given.items() if name not in RUN_OPTIONS}
    return settings, {name: given[name] for name in RUN_OPTIONS}


def make_run_options(folder: Path, options: Mapping[str, Any], *, names_code: bool) -> "RunOptions":
    """The run options of a command."""
    from freeat.runs.run import RunOptions

    trusted = trusts_code(options["trust_code"], names_code)
    return RunOptions(**{**options, "folder": folder, "trust_code": trusted})


with_option = click.option(
    "--with",
    "added",
    default=None,
    help="train every algorithm with each of these parts, separated by commas: none, awp, label-smoothing, clip-grad, "
    "proximal, swa, ema, with a value as awp=0.005, several as awp+ema  [default: none]",
)


def parse_variants(given: Any, settings: Mapping[str, Any] | None = None) -> list[str]:
    """Parts as a text with commas, or as a list in a settings file; none of them is a shared setting too."""
    variants = ["none"] if given is None else parse_list(given, "with", "parts, e.g. none,awp,awp+ema")
    variants = list(dict.fromkeys(variants))
    for parts in variants:
        if twice := parse_parts(parts).keys() & (settings or {}).keys():
            option = sorted(twice)[0].replace("_", "-")
            raise InputError(
                f"--{option} holds for every run and {parts!r} of --with sets it too: leave --{option} out, and write "
                f"its value there ({option}=VALUE)"
            )
    return variants


def with_each(names: Sequence[str], variants: Sequence[str]) -> list[str]:
    """Every algorithm with each of the parts: ``free-4``, ``free-4+awp``."""
    return [f"{name}+{parts}" if parts != "none" else name for name in names for parts in variants]
