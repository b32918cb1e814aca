"""`interlace completion`."""

import sys

import click

from orchestrator.commands.completing import COMPLETE_VARIABLE

HOW = {
    "bash": 'eval "$(interlace completion bash)"',
    "zsh": 'eval "$(interlace completion zsh)"',
    "fish": "interlace completion fish | source",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(HOW)))
def command(shell: str) -> None:
    """Print a shell's completion script: commands, options, overrides, runs, stored queries.

    \b
      ~/.zshrc                      eval "$(interlace completion zsh)"
      ~/.bashrc                     eval "$(interlace completion bash)"
      ~/.config/fish/config.fish    interlace completion fish | source
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    made = kind(root, {}, "interlace", COMPLETE_VARIABLE)
    sys.stdout.write(made.source_template % made.source_vars())  # `source` runs bash to warn of old versions
    sys.stdout.write("\n")
