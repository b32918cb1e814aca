"""Writes the questions and the columns into docs/sql.md, from db/queries/*.sql and db/columns.toml.

    python docs/questions.py          rewrites what stands between the marks

A test holds the document equal to the files.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from db.columns import tables, views
from db.stored_queries import SHIPPED, StoredQuery, in_groups, read_query

DOCUMENT = Path(__file__).with_name("sql.md")


def main() -> None:
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


def rewritten(text: str) -> str:
    """The document with what stands between its marks as the files have it."""
    parts = {"tables": tables_part(), "columns": columns_part(), "questions": questions_part()}
    for name, lines in parts.items():
        begin, end = f"<!-- {name}: written by docs/questions.py -->", f"<!-- end of {name} -->"
        body = "\n".join(lines)
        text = re.sub(
            f"{re.escape(begin)}.*?{re.escape(end)}",
            lambda _, whole=f"{begin}\n\n{body}\n\n{end}": whole,
            text,
            flags=re.DOTALL,
        )
    return text


def tables_part() -> Iterator[str]:
    yield from ("| table | a row is |", "|---|---|")
    yield from (f"| `{name}` | {meaning} |" for name, meaning in tables().items())
    yield from ("", "| view | a row is |", "|---|---|")
    yield from (f"| `{name}` | {view.meaning} |" for name, view in views().items())


def columns_part() -> Iterator[str]:
    for number, (name, view) in enumerate(views().items()):
        yield from ([""] if number else [])
        yield from (f"### `{name}`", "", "| column | meaning |", "|---|---|")
        yield from (f"| `{column}` | {meaning} |" for column, meaning in view.columns.items())


def questions_part() -> Iterator[str]:
    queries = [read_query(path) for path in SHIPPED.glob("*.sql")]
    for number, (group, members) in enumerate(in_groups(queries)):
        yield from ([""] if number else [])
        yield f"### {group.capitalize()}"
        for query in members:
            yield from ("", *_question(query))


def _question(query: StoredQuery) -> Iterator[str]:
    yield from (f"#### {query.title}", "", f"`interlace query {query.name}`{_parameters(query)}", "")
    if query.description:
        yield from (query.description, "")
    yield from ("```sql", query.sql, "```")


def _parameters(query: StoredQuery) -> str:
    told = (f"`{each}`" + (f" ({each.meaning})" if each.meaning else "") for each in query.parameters)
    words = ", ".join(told)
    return f" with {words}" if words else ""


if __name__ == "__main__":
    main()
