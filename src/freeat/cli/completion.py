"""``freeat completion``: what makes a shell complete commands and options."""

import click

HOWTO = {
    "bash": 'add to ~/.bashrc:  eval "$(freeat completion bash)"',
    "zsh": 'add to ~/.zshrc, after compinit:  eval "$(freeat completion zsh)"',
    "fish": "freeat completion fish > ~/.config/fish/completions/freeat.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(HOWTO)))
def completion(shell: str) -> None:
    """Print the script that completes freeat's commands and options in SHELL.

    \b
    bash: add to ~/.bashrc                       eval "$(freeat completion bash)"
    zsh:  add to ~/.zshrc, after compinit        eval "$(freeat completion zsh)"
    fish: freeat completion fish > ~/.config/fish/completions/freeat.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from freeat.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None  # click knows all three
    # The base class's text: bash's own would first start a bash to ask for its version.
    script = ShellComplete.source(made(cli, {}, "freeat", "_FREEAT_COMPLETE"))
    click.echo(f"# {HOWTO[shell]}\n{script}")
