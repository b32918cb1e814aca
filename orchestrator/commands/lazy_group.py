"""A group whose commands are imported one by one, as Click's documentation describes it."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Imports the module of the command that is called; lists and hints are made from the summaries alone.

    Args:
        package: the package that holds a module `cmd_NAME` for each command, with the command as its `command`.
        words: other words for commands, and what to type instead.
        summaries: the first sentence of each command's help, by the command's name.
    """

    def __init__(
        self, name: str | None, *, package: str, summaries: Mapping[str, str], words: Mapping[str, str], **settings: Any
    ) -> None:
        listed = {each: click.Command(each, help=summary) for each, summary in summaries.items()}
        super().__init__(name, listed, **settings)
        self._package, self._words = package, words

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; for another tool's word, the command of ours that does it."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if (ours := self._words.get(args[0])) is None:
                raise
            ctx.fail(f"No such command '{args[0]}'. Did you mean `interlace {ours}`?")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, its module imported."""
        if cmd_name not in self.commands:
            return None
        command = importlib.import_module(f"{self._package}.cmd_{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without an import."""
        click.Group(self.name, self.commands).format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Completions of a command's name or of an option, without an import."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.commands[name].get_short_help_str()) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
