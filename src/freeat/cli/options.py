"""What commands share: an option for every setting of the specs, where a run happens, and stopping on a signal."""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from freeat.errors import InputError
from freeat.runs.spec import EvalSpec, TrainSpec, read_yaml
from freeat.units import parse_number

if TYPE_CHECKING:
    from freeat.runs.run import RunOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FLAGS = {
    "box": "--box/--no-box",
    "deterministic": "--deterministic/--fast",
    "compile": "--compile",
}


def setting_options(*specs: type[TrainSpec] | type[EvalSpec], leave_out: tuple[str, ...] = ()) -> Decorator:
    """An option for every setting of the specs; what is not given stays unset, so that a file's value holds."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for spec in reversed(specs):
            for name, setting in reversed(spec.fields().items()):
                if name not in leave_out:
                    command = _option(name, setting.default, setting.metadata["help"])(command)
        return command

    return decorate


def _option(name: str, default: Any, text: str) -> Decorator:
    if name in FLAGS:
        return click.option(FLAGS[name], name, is_flag=True, default=None, help=text)
    shown = f"  [default: {default:g}]" if isinstance(default, float) else f"  [default: {default}]"
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        default=None,
        help=text + (shown if default not in (None, 0.0) else ""),
    )


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where a run happens: device, data folder, how it behaves."""
    decorators = [
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps"),
        click.option(
            "--data-dir", type=click.Path(path_type=Path), help="folder of the data sets (or $FREEAT_DATA)"
        ),
        click.option(
            "--checkpoint-every",
            type=float,
            default=60.0,
            show_default=True,
            help="seconds between checkpoints",
        ),
        click.option(
            "--on-collapse",
            type=click.Choice(["warn", "stop"]),
            default="warn",
            show_default=True,
            help="what to do when robustness collapses",
        ),
        click.option(
            "--trust-code", is_flag=True, help="allow importing code that a spec or run folder names"
        ),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``: the result as one document on stdout, everything else on stderr."""
    return click.option("--json", "as_json", is_flag=True, help="print the result as one JSON document")(
        command
    )


def gather_settings(given: dict[str, Any], file: Path | None) -> dict[str, Any]:
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
        except ValueError as error:
            raise InputError(f"{option} {text!r} is not JSON: {error}") from None
        assert isinstance(values, dict)
        return values
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(separator for _, separator, _ in pairs):
        raise InputError(f"{option} {text!r}: write key=value,… or a JSON object")
    return {key.strip(): _plain(value.strip()) for key, _, value in pairs}


def _plain(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = parse_number(text)
    except InputError:
        return text
    return int(number) if number.is_integer() and "." not in text else number


def typed_code(given: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether the user has typed every import path that is in effect, rather than left one to a file."""
    paths = [name for name in ("model", "algorithm", "algorithms") if ":" in str(settings.get(name, ""))]
    return bool(paths) and all(given.get(name) is not None for name in paths)


def trusts_code(asked: bool, names_code: bool) -> bool:
    """Whether code may be imported: the user asked for it, or has just repeated its name.

    Then it is also found in the current folder, as ``python -m`` would find it.
    """
    trusted = asked or names_code
    if trusted and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return trusted


def make_run_options(folder: Path, options: dict[str, Any], *, names_code: bool) -> "RunOptions":
    """The run options of a command."""
    from freeat.runs.run import RunOptions

    trusted = trusts_code(options.pop("trust_code"), names_code)
    return RunOptions(folder=folder, trust_code=trusted, **options)


def picture(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse the name of a picture that cannot be drawn, before anything is computed for it."""
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"{path}: a picture is drawn as .png, .pdf or .svg, by the ending of its name")
    return path


RUN_OPTIONS = ("device", "data_dir", "checkpoint_every", "on_collapse", "trust_code")


def split_run_options(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the specs, and the run options, out of all that was given."""
    options = {name: given.pop(name) for name in RUN_OPTIONS}
    return given, options


class StopRequest:
    """Whether a signal came, and which exit code answers it."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        return self.signal != 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 1


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Inside, the first SIGTERM or SIGINT asks to stop with everything saved; the second interrupts as usual."""
    request = StopRequest()

    def receive(number: int, frame: FrameType | None) -> None:
        if request.signal:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
