"""The command line: finds the command, runs it, and turns bad input into one message and exit code 2."""

import importlib
import logging
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from freeat.errors import InputError, __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("freeat.cli.train", "Train a robust classifier and measure its generalization gap."),
    "evaluate": (
        "freeat.cli.evaluate",
        "Measure how robust models are: as trained, or under any attack, over radii.",
    ),
    "compare": ("freeat.cli.compare", "Several algorithms and seeds on one data set, side by side."),
    "reproduce": (
        "freeat.cli.reproduce",
        "The paper's tables and figures, ours beside the published ones.",
    ),
    "runs": ("freeat.cli.runs", "List, show, delete and compare stored runs."),
    "transfer": ("freeat.cli.transfer", "Attack models with perturbations made on other models."),
    "stability": (
        "freeat.cli.stability",
        "Measure algorithmic stability by twin runs on neighbouring data sets.",
    ),
    "report": ("freeat.cli.report", "Write one HTML page of everything that lies in some folders."),
    "bound": ("freeat.cli.bound", "Evaluate the generalization bounds of Theorems 2, 4 and 5."),
    "export": ("freeat.cli.export", "Write a run's model as safetensors, JSON, a model card and ONNX."),
    "data": ("freeat.cli.data", "List and fetch data sets."),
    "algorithms": ("freeat.cli.listing", "List the training algorithms."),
    "attacks": ("freeat.cli.listing", "List the attacks for `freeat evaluate`."),
    "models": ("freeat.cli.listing", "List the networks with their parameter counts."),
    "doctor": ("freeat.cli.doctor", "Say what this machine has: device, precision, data, extras."),
    "completion": ("freeat.cli.completion", "Print the script for completion in bash, zsh or fish."),
}
"""Each command's module and its line in the list; the modules are imported when the command is used."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[name][0]), name)
        assert isinstance(command, click.Command)
        _hear_verbose(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from freeat.errors import unknown_name

        completing = ctx.resilient_parsing
        if args and not completing and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise unknown_name("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Not the group's own way, which would import every command.
        names = [(name, line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=line) for name, line in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _say_more(ctx: click.Context, parameter: click.Parameter, verbose: bool) -> None:
    if verbose:
        logging.getLogger("freeat").setLevel(logging.INFO)


def _verbose_option() -> click.Option:
    return click.Option(
        ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_say_more, help="Say more on the way."
    )


def _hear_verbose(command: click.Command) -> None:
    """Let ``-v`` stand behind a command as well as before it."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _hear_verbose(part)
    elif not any("--verbose" in parameter.opts for parameter in command.params):
        command.params.append(_verbose_option())


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="freeat")
@click.option("-v", "--verbose", is_flag=True, help="Say more on the way.")
def cli(verbose: bool) -> None:
    """Adversarial training whose robustness generalizes."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("freeat").setLevel(logging.INFO if verbose else logging.NOTSET)
    logging.captureWarnings(True)


def main(args: list[str] | None = None) -> None:
    """The program ``freeat``."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 2 for bad input, 1 for a failed run, 130/143 when stopped."""
    try:
        outcome: Any = cli.main(args=args, prog_name="freeat", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except InputError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    except OSError as error:
        click.echo(f"error: {error.filename or 'a file'} cannot be used: {error.strerror or error}", err=True)
        return 2
    return outcome if isinstance(outcome, int) else 0
