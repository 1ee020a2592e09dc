"""The command line: finds the command, runs it, ends it on a signal, and turns bad input into one message."""

import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from types import FrameType
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from freeat.errors import InputError, __version__, is_text, printable, unknown_name

COMMANDS = {
    "train": "Train a robust classifier and measure its generalization gap.",
    "evaluate": "Evaluate the robustness of models: as in training, or under any attacks and radii.",
    "compare": "Train several algorithms with several seeds on one data set.",
    "reproduce": "Reproduce the paper's tables and figures beside the published numbers.",
    "runs": "List, show, delete and compare stored runs.",
    "transfer": "Evaluate models on perturbations made on other models.",
    "stability": "Measure algorithmic stability by twin runs on neighbouring data sets.",
    "population": "Measure the exact generalization gap on a Gaussian mixture.",
    "report": "Write one HTML page about the runs and results in some folders.",
    "bound": "Evaluate the generalization bounds of Theorems 2, 4 and 5.",
    "predict": "Classify images by the model of a run, an exported folder or an ONNX file.",
    "export": "Write a run's model as safetensors, JSON, a model card and ONNX.",
    "data": "List and fetch data sets.",
    "algorithms": "List the training algorithms.",
    "attacks": "List the attacks for `freeat evaluate`.",
    "models": "List the networks with their parameter counts.",
    "doctor": "Show the machine's devices, precisions, data sets and installed extras.",
    "completion": "Print the script for completion in bash, zsh or fish.",
}
"""The commands in the order of ``freeat --help``, with their line there."""

SHARED_MODULES = {
    "algorithms": "listing",
    "attacks": "listing",
    "models": "listing",
    "completion": "main",
}
"""Where a command is that has no module of its own name."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"freeat.cli.{SHARED_MODULES.get(name, name)}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        _add_verbose(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        completing = ctx.resilient_parsing
        if args and not completing and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise unknown_name("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click.Group's own would import every command for its help line.
        names = [CompletionItem(n, help=line) for n, line in COMMANDS.items() if n.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _set_verbose(ctx: click.Context, parameter: click.Parameter, verbose: bool) -> None:
    if verbose or ctx.parent is None:
        logging.getLogger("freeat").setLevel(logging.INFO if verbose else logging.NOTSET)


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=_set_verbose, help="log more to stderr"
)


def _add_verbose(command: click.Command) -> None:
    """Accept ``-v`` after the name of a command as well as before it."""
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _add_verbose(subcommand)
    elif not any("--verbose" in parameter.opts for parameter in command.params):
        verbose_option(command)


class _PrintableFormatter(logging.Formatter):
    """Messages without the control characters of names in them."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _PrintableStream:
    """Standard output without the control characters of names that are read from files."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        return self.unfiltered.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="freeat")
@verbose_option
def cli() -> None:
    """Adversarial training, with the robust generalization gap measured."""
    logging.basicConfig(level=logging.WARNING if _prints() else logging.ERROR, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_PrintableFormatter("%(levelname)s: %(message)s"))
    logging.captureWarnings(True)


INSTALL_COMPLETION = {
    "bash": 'add to ~/.bashrc:  eval "$(freeat completion bash)"',
    "zsh": 'add to ~/.zshrc, after compinit:  eval "$(freeat completion zsh)"',
    "fish": "freeat completion fish > ~/.config/fish/completions/freeat.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL_COMPLETION)))
def completion(shell: str) -> None:
    """Print the script that completes freeat's commands and options in SHELL.

    \b
    bash: add to ~/.bashrc                       eval "$(freeat completion bash)"
    zsh:  add to ~/.zshrc, after compinit        eval "$(freeat completion zsh)"
    fish: freeat completion fish > ~/.config/fish/completions/freeat.fish
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None  # click has all three
    # The base class's text: bash's own would first start a bash to ask for its version.
    script = ShellComplete.source(shell_class(cli, {}, "freeat", "_FREEAT_COMPLETE"))
    click.echo(f"# {INSTALL_COMPLETION[shell]}\n{script}")


ENDING = (signal.SIGTERM, signal.SIGINT)

GRACE = 5.0
"""Seconds that a command has to end after a signal where it has nothing to save."""

SAME = 0.5
"""Seconds within which a second signal is the same request: `timeout` signals a command, and then its group with it."""

SHOW_CURSOR = b"\x1b[?25h"


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command, raised wherever it is."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = number


class StopRequest:
    """Whether a signal came, and which; called by a run wherever it can be saved."""

    def __init__(self) -> None:
        self.signal = 0
        self.can_save = False

    def __call__(self) -> bool:
        self.can_save = True
        return self.signal != 0


_request: StopRequest | None = None
_interrupted = False


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the command, once: a second signal that interrupted its clean-up would be a traceback; ``_watch`` ends it."""
    global _interrupted
    if not _interrupted:
        _interrupted = True
        raise Interrupted(number)


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Inside, the first SIGTERM or SIGINT requests a stop with everything saved, once a run asks for such requests.

    Before, while data are read and checked, it ends the command. A run that stopped ends the command with its message:
    exit code 128 + signal, or 1 where no signal came.
    """
    from freeat.training.trainer import Stopped

    global _request
    request = _request = StopRequest()

    def receive(number: int, frame: FrameType | None) -> None:
        if not request.can_save:
            _interrupt(number, frame)
        request.signal = request.signal or number

    before = {number: signal.signal(number, receive) for number in ENDING}
    try:
        yield request
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        raise click.exceptions.Exit(128 + request.signal if request.signal else 1) from stopped
    finally:
        _request = None
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM ends the command as SIGINT does, and a second signal ends the process whatever it is doing.

    The process also ends where it does not answer the first one for ``GRACE`` seconds and has nothing to save.
    """
    global _interrupted
    _interrupted = False
    received, sent = socket.socketpair()
    sent.setblocking(False)
    before = {number: signal.signal(number, _interrupt) for number in ENDING}
    # The thread learns of a signal also while the main thread waits for a file, where Python runs no handler.
    wakeup = signal.set_wakeup_fd(sent.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(received,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        sent.close()


def _watch(received: socket.socket) -> None:
    first, latest = 0.0, 0
    while True:
        try:
            number = received.recv(1)
        except TimeoutError:
            if _request is None or not _request.can_save:
                _end(latest)
            continue
        if not number:
            return
        if number[0] not in ENDING:
            continue
        if latest and time.monotonic() - first > SAME:
            _end(number[0])
        if not latest:
            first, latest = time.monotonic(), number[0]
            received.settimeout(GRACE)


def _end(number: int) -> None:
    """End this process and its workers without waiting for them: what they have published is whole."""
    with suppress(OSError, ValueError):  # it is closed
        os.write(sys.stderr.fileno(), (SHOW_CURSOR + b"\n" if sys.stderr.isatty() else b"") + b"stopped\n")
    # Not imported here: the main thread may wait inside an import.
    if (processes := sys.modules.get("multiprocessing")) is not None:
        for worker in processes.active_children():
            worker.kill()
    os._exit(128 + number)


def main(args: list[str] | None = None) -> None:
    """The program ``freeat``."""
    with ended_by_signals():
        code = run(args)
    for number in ENDING:  # Python's own handler of Ctrl-C would print a traceback while the interpreter ends
        signal.signal(number, signal.SIG_DFL)
    sys.exit(code)


def _prints() -> bool:
    """Whether this process prints results and warnings: of those that ``torchrun`` started, the first does."""
    if "RANK" not in os.environ:
        return True
    from freeat.learner.distributed import is_main_process

    return is_main_process()


def _check_words(words: Sequence[str]) -> None:
    """Refuse names that cannot be stored: of files whose names are bytes, not text, or that no file can have."""
    for word in words:
        if not is_text(word) or "\0" in word:
            raise InputError(
                f"{word!r} is not UTF-8 text, and freeat stores the names it is given: rename that file"
            )


def run(args: list[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 2 for bad input, 1 for a failed run, 130/143 when stopped."""
    try:
        _check_words(sys.argv[1:] if args is None else args)
        with (
            open(os.devnull, "w", encoding="utf-8") as nowhere,
            redirect_stdout(_PrintableStream(sys.stdout if _prints() else nowhere)),
        ):
            outcome: Any = cli.main(args=args, prog_name="freeat", standalone_mode=False)
    except click.exceptions.Abort as abort:
        click.echo("stopped", err=True)
        return 128 + (abort.__cause__.signal if isinstance(abort.__cause__, Interrupted) else signal.SIGINT)
    except click.ClickException as error:
        error.show()
        return 2
    except InputError as error:
        click.echo(printable(f"error: {error}"), err=True)
        return 2
    except OSError as error:
        reason = f"{error.filename or 'a file'} cannot be used: {error.strerror or error}"
        click.echo(printable(f"error: {reason}"), err=True)
        return 2
    return outcome if isinstance(outcome, int) else 0
