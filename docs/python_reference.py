"""Writes docs/reference/python.md from the signatures and docstrings of what Python users call.

    python docs/python_reference.py

A test holds the page equal to the code.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from db import frames, query
from orchestrator import effects, notebook, schedule

PAGE = Path(__file__).with_name("reference") / "python.md"
_INTRODUCTION = """# Python

`import interlace` opens stored runs in Python and notebooks. The modules of `db` and `orchestrator` lie below it:
frames of rows, read-only queries, the schedule and the estimate of an effect.
"""
_SECTIONS: tuple[tuple[str, tuple[Callable[..., Any], ...]], ...] = (
    ("interlace", (notebook.runs, notebook.trials, notebook.verdicts, notebook.audit, notebook.Audit)),
    ("db.frames", (frames.trials, frames.verdicts, frames.runs, frames.answers, frames.resolve_run)),
    ("db.query", (query.run_query,)),
    ("orchestrator.schedule", (schedule.draw_rounds,)),
    ("orchestrator.effects", (effects.estimate_effect, effects.Effect)),
)


def page() -> str:
    """The page's text."""
    return _INTRODUCTION + "".join(_section(name, members) for name, members in _SECTIONS)


def _section(name: str, members: tuple[Callable[..., Any], ...]) -> str:
    return f"\n## {name}\n" + "".join(f"\n### {member.__name__}\n\n{_member(name, member)}\n" for member in members)


def _member(module: str, member: Callable[..., Any]) -> str:
    text = inspect.cleandoc(member.__doc__ or "")
    return f"```python\n{module}.{member.__name__}{_signature(member)}\n```\n\n" + "\n".join(_lists(text))


def _signature(member: Callable[..., Any]) -> str:
    """Names and defaults: how annotations print depends on Python's version."""
    found = inspect.signature(member)
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _lists(text: str) -> Iterator[str]:
    """The docstring as Markdown: each entry below Args, Raises and Attributes is an item of a list."""
    for line in text.splitlines():
        if heading := re.fullmatch(r"(Args|Raises|Attributes|Returns):", line):
            yield f"**{heading[1]}**\n"
        elif item := re.fullmatch(r" {4}(\w+): (.*)", line):
            yield f"- `{item[1]}`: {item[2]}"
        else:
            yield re.sub(r"^ {8}", "  ", line)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
