"""Completions that a shell offers at Tab: groups, options, settings, runs, stored queries, checkpoints.

Click's own completion calls these. Whatever goes wrong here offers nothing: no error may appear while a person types.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Offers = Iterable[tuple[str, str | None]]  # value, help
Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]
COMPLETE_VARIABLE = "_INTERLACE_COMPLETE"  # set by a shell that asks what to offer
_RUNS_OFFERED = 20


def _completer(offers: Callable[[click.Context, str], Offers]) -> Completer:
    @wraps(offers)
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        try:
            found = [each for each in offers(context, incomplete) if each[0].startswith(incomplete)]
        except Exception:  # noqa: BLE001 - see the module
            return []
        return [CompletionItem(value, help=words) for value, words in found]

    return complete


@_completer
def overrides(context: click.Context, incomplete: str) -> Offers:
    """A key, or the values of one: `checkpoint=smollm2-8bit,` offers further ones.

    Bash splits a word at each `=`, so that the key may be an earlier word.
    """
    before = [str(each) for each in context.params.get("overrides") or ()]
    key, equals, text = incomplete.partition("=")
    if equals:
        return [(f"{key}={value}", None) for value in _values(context, key, text)]
    if before and before[-1] == "=" and len(before) > 1:
        return [(value, None) for value in _values(context, before[-2], incomplete)]
    return [(f"{each}=", None) for each in _keys()]


def _values(context: click.Context, key: str, text: str) -> list[str]:
    """The options of a group, each after what is listed already."""
    listed = text.rpartition(",")[0]
    parts = _parts(context)
    group = "checkpoint" if key == "engine.draft" else key
    return [f"{listed},{option}" if listed else option for option in parts.options(group)]


def _keys() -> list[str]:
    from conf.store import PLAN_GROUPS
    from orchestrator.configuration.checks import all_settings

    return [*PLAN_GROUPS, "control", "experiment", *all_settings()]


def _parts(context: click.Context) -> Any:
    from orchestrator.configuration.groups import Parts

    return Parts(context.params.get("config_dir"))


@_completer
def runs(context: click.Context, incomplete: str) -> Offers:
    """The newest runs by their ids, experiments by their names, and `last`."""
    from sqlalchemy import text

    from db.runs import RUNS_SQL
    from db.session import database_url, open_existing, plain_read

    with plain_read(open_existing(database_url(context.params.get("url")))) as connection:
        rows = [tuple(map(str, row)) for row in connection.execute(text(RUNS_SQL)).fetchmany(_RUNS_OFFERED)]
    names = dict.fromkeys(experiment for _, experiment, _ in rows)
    found = [(name, "the newest run of this experiment") for name in names]
    found += [(run_id, f"{experiment}, {status}") for run_id, experiment, status in rows]
    return [("last", "the newest run"), *found]


@_completer
def queries(context: click.Context, incomplete: str) -> Offers:
    """The stored queries."""
    from db.session import database_url
    from db.stored_queries import stored_queries

    return [(query.name, None) for query in stored_queries(database_url(context.params.get("url")))]


@_completer
def checkpoints(context: click.Context, incomplete: str) -> Offers:
    """The checkpoints that have a name."""
    return [(name, None) for name in _parts(context).options("checkpoint")]


@_completer
def engines(context: click.Context, incomplete: str) -> Offers:
    """The engines."""
    from orchestrator.configuration.engines import engine_kinds

    return [(kind.name, kind.meaning) for kind in engine_kinds().values()]
