"""Writes docs/reference/commands.md from the commands' own help.

    python docs/commands.py

A test holds the page equal to the commands.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from orchestrator.cli import cli

PAGE = Path(__file__).with_name("reference") / "commands.md"
WIDTH = 100


def page() -> str:
    """The page's text: one section per command, with what `--help` prints."""
    head = "# Commands\n\nEvery command, as `--help` prints it.\n"
    return head + "".join(_sections(cli, click.Context(cli, info_name="interlace", **cli.context_settings)))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    context.terminal_width, context.max_content_width = WIDTH, WIDTH
    yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _sections(below, click.Context(below, info_name=name, parent=context))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
