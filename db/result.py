"""What a query gives."""

from dataclasses import dataclass

Value = int | float | str | bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """A result's columns, named uniquely, and its rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
