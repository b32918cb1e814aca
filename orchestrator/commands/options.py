"""Options that several commands take."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from orchestrator.commands import completing
from orchestrator.vocabulary import DIRECTIONS, METRICS, VERDICTS

Command = Callable[..., Any]

FILE = click.Path(dir_okay=False, path_type=Path)


class Words(click.Choice[str]):
    """A choice that takes `could-be-drift` and `Could be drift` for could_be_drift."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return "_".join(super().normalize_choice(str(choice), ctx).lower().replace("-", " ").replace("_", " ").split())


def config_dir(command: Command) -> Command:
    """`--config-dir`, as `config_dir`."""
    return click.option(
        "--config-dir",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A folder with your own groups: DIR/checkpoint/mine.yaml becomes checkpoint=mine.",
    )(command)


def plan_arguments(command: Command) -> Command:
    """OVERRIDES and `--config-dir`: what a plan is composed of."""
    argument = click.argument("overrides", nargs=-1, metavar="[OVERRIDES]...", shell_complete=completing.overrides)
    return argument(config_dir(command))


def db(command: Command) -> Command:
    """`--db`, as `url`."""
    return click.option(
        "--db", "url", metavar="URL", help="The database. Default: INTERLACE_DB, else your data folder."
    )(command)


def fail_on(command: Command) -> Command:
    """`--fail-on`, as `fail_on`."""
    return click.option(
        "--fail-on",
        multiple=True,
        type=Words([*VERDICTS, *DIRECTIONS]),
        help="Exit with 1 when a comparison over all prompts has this verdict, or is supported in this direction."
        " Repeatable.",
    )(command)


def document_format(command: Command) -> Command:
    """`--format`, as `style`: see `orchestrator.commands.documents`."""
    return _format("table", "json", "markdown")(command)


def audit_format(command: Command) -> Command:
    """`--format` of an audit, as `style`: JUnit's XML too, for CI."""
    return _format("table", "json", "markdown", "junit")(command)


def _format(*styles: str) -> Callable[[Command], Command]:
    return click.option("--format", "style", type=click.Choice(styles), default=styles[0])


def metric(*, help: str | None = None, default: str | None = None) -> Callable[[Command], Command]:
    """`--metric`, as `metric`."""
    return click.option(
        "--metric", type=Words(list(METRICS)), default=default, show_default=default is not None, help=help
    )
