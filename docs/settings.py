"""Writes docs/reference/settings.md from the declarations of the groups and the engines.

    python docs/settings.py

A test holds the page equal to the declarations.
"""

from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path
from typing import Any

from conf.store import GROUP_SCHEMAS
from orchestrator.configuration.engines import engine_kinds
from orchestrator.configuration.setting_rows import setting_rows

PAGE = Path(__file__).with_name("reference") / "settings.md"
_OF_EVERY_ENGINE = frozenset({"name", "python", "environment"})


def page() -> str:
    """The page's text: a table per group, then one per engine of ours."""
    head = (
        "# Settings\n\nEvery setting, as its declaration in the code says it. A key is typed with its group in front: "
        "`design.rounds=12`,\n`engine.block_size=4`. `interlace engine show NAME` prints the same for an engine, those "
        "of other packages included.\n"
    )
    groups = [name for name in GROUP_SCHEMAS if name not in ("claim", "engine")]
    parts = [_section(f"`{name}`", GROUP_SCHEMAS[name]) for name in groups]
    parts += [_section("`engine`: every engine", GROUP_SCHEMAS["engine"])]
    for kind in engine_kinds().values():
        if kind.package is None:
            parts.append(_section(f"`engine={kind.name}`", kind.schema, text=kind.meaning, without=_OF_EVERY_ENGINE))
    return head + "".join(parts)


def _section(title: str, schema: type[Any], *, text: str | None = None, without: frozenset[str] = frozenset()) -> str:
    meaning = (getdoc(schema) or "").split("\n\n")[0] if text is None else text
    return "\n".join(["", f"## {title}", "", " ".join(meaning.split()), "", *_table(schema, without), ""])


def _table(schema: type[Any], without: frozenset[str]) -> Iterator[str]:
    yield "| setting | takes | default | meaning |"
    yield "|---|---|---|---|"
    for row in setting_rows(schema, without=without):
        yield f"| `{row.key}` | {row.takes} | `{row.default}` | {row.meaning} |".replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
