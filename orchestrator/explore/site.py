"""The explorer's content: titles, descriptions, the stored queries, and redirects of bare addresses. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from db.columns import tables, views
from db.stored_queries import RUN, StoredQuery, in_groups, replace_parameters

NAME = "interlace"  # the database's, in every address
HOME = f"/{NAME}"
STATIC = "explore"
# Columns of a view that few values fill: the page counts them and offers each as a filter.
_FACETS = {"trial_flat": ["experiment", "engine", "kind", "status"], "verdict_flat": ["verdict", "prompt_class"]}
_NEWEST_FIRST = {"trial_flat": "started_at", "verdict_flat": "run_created_at"}
_STORED_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The pages that need more than their address says."""

    queries: Mapping[str, StoredQuery]
    resolve_run: Callable[[str], str | None]  # None: no such run

    def redirect(self, path: str, query_string: str) -> str | None:
        """Return the redirect of a request: a query with its defaults filled in, a view with its first columns.

        None: it is complete as it is.
        """
        if path in ("", "/"):
            return HOME
        page, _, name = path.rpartition("/")
        if page != HOME:
            return None
        stem, dot, extension = name.partition(".")
        given = dict(parse_qsl(query_string, keep_blank_values=True))
        if name in views() and not given:
            return f"{path}?{urlencode(_first_look(name))}"
        if stem in self.queries:
            wanted = given | self._missing(self.queries[stem], given)
            return f"{HOME}/{stem}{dot}{extension}?{urlencode(wanted)}" if wanted != given else None
        return None

    def _missing(self, query: StoredQuery, given: Mapping[str, str]) -> dict[str, str]:
        """Defaults that were not given, and the whole id of a run that was given in short."""
        found = {name: text for name, text in query.defaults.items() if not given.get(name)}
        short = found.get(RUN) or (given.get(RUN) if RUN in query.defaults else None)
        if short and (run_id := self.resolve_run(short)) is not None:
            found[RUN] = run_id
        return found


def metadata(queries: Sequence[StoredQuery], *, path: str) -> dict[str, Any]:
    """The metadata of the database for Datasette: see its documentation of metadata."""
    described = {name: {"description": meaning} for name, meaning in tables().items()}
    return {
        "title": "interlace",
        "extra_css_urls": [f"/{STATIC}/explore.css"],
        "databases": {
            NAME: {
                "title": "interlace",
                "description": path,
                "tables": described | {name: _view(name) for name in views()},
                "queries": {query.name: _canned(query) for query in _in_order(queries)},
            }
        },
    }


def _in_order(queries: Sequence[StoredQuery]) -> list[StoredQuery]:
    shipped = in_groups(query for query in queries if not query.own)
    return [query for query in queries if query.own] + [query for _, members in shipped for query in members]


def _view(name: str) -> dict[str, Any]:
    view = views()[name]
    return {"description": view.meaning, "columns": dict(view.columns), "facets": _FACETS[name]}


def _canned(query: StoredQuery) -> dict[str, Any]:
    """A query's page. Values from a form are text, so the placeholder of a number must convert them."""
    numbers = {each.name: f"CAST(:{each.name} AS NUMERIC)" for each in query.parameters if _is_number(each.default)}
    return {
        "sql": replace_parameters(query.sql, numbers),
        "title": query.title,
        "description": query.description.replace("`", ""),
        "params": [each.name for each in query.parameters],
        "hide_sql": True,
        "group": "yours" if query.own else query.group,
    }


def shown_cell(value: object) -> str | None:
    """A cell for reading: rates in six digits, times to the second. None: as it is. Exports have every digit."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and _STORED_TIME.fullmatch(value):
        return value.partition(".")[0]
    return None


def _is_number(text: str | None) -> bool:
    return text is not None and text.lstrip("+-").replace(".", "", 1).isdigit()


def _first_look(view: str) -> Sequence[tuple[str, str]]:
    """The first columns, newest first, and no count of all rows: at a million generations that takes seconds."""
    columns = [("_col", column) for column in views()[view].shown]
    return [*columns, ("_sort_desc", _NEWEST_FIRST[view]), ("_nocount", "1")]
