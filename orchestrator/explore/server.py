"""Runs the explorer in this process, on a loopback socket of its own, until Ctrl-C."""

import importlib
import os
import socket
import sqlite3
import sys
import webbrowser
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from db.engine import connect_readonly
from db.errors import RunNotFoundError
from db.escaping import shown_line
from db.runs import RUNS_SQL, choose_run
from db.stored_queries import StoredQuery, stored_queries
from orchestrator.errors import InputError, RefusedError
from orchestrator.explore.guard import Guard
from orchestrator.explore.limits import TIME_LIMIT_MS, WATCH, LimitedConnection, limit
from orchestrator.explore.nonces import Nonces
from orchestrator.explore.site import NAME, STATIC, Site, metadata

HOST = "127.0.0.1"
PORT = 8341
_SETTINGS = {
    "sql_time_limit_ms": TIME_LIMIT_MS,  # `interlace query` has no limit
    "facet_time_limit_ms": 300,
    "suggest_facets": False,  # looks at every column of every view, one by one
    "allow_download": False,  # copies the file without its log: `interlace db backup` does it right
    "default_page_size": 50,
    "truncate_cells_html": 300,
}
_FOLDER = Path(__file__).parent


def listen(port: int | None) -> socket.socket:
    """A listening socket on the loopback address alone. Without a port: the usual one, or a free one.

    Raises:
        InputError: the port that was asked for is taken or not allowed.
    """
    for candidate in (PORT, 0) if port is None else (port,):
        # Closed at once if it cannot be bound; else the server closes it.
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, candidate))
            found.listen(64)
        except OSError as error:
            found.close()
            problem = error
        else:
            return found
    raise InputError(f"port {port}: {problem.strerror}; name another with --port, or none for a free one")


def explore(url: str, path: Path, *, port: int | None, open_browser: bool, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C.

    Raises:
        RefusedError: Datasette is not installed.
        InputError: the port is taken.
    """
    application = build(stored_queries(url), path)
    with listen(port) as found:
        address = f"http://{HOST}:{found.getsockname()[1]}/{NAME}"
        if port is None and found.getsockname()[1] != PORT:
            say(f"port {PORT} is taken; another was chosen")
        say(f"{address}  read-only, this machine only; Ctrl-C ends it")
        if open_browser:
            webbrowser.open(address)  # the socket listens: an early request waits
        WATCH.keep(partial(_start_anew, url, found.getsockname()[1]))
        _serve(application, found)
        WATCH.ended.set()
    if WATCH.running:
        os._exit(0)  # a query that cannot be stopped would delay the exit


def _start_anew(url: str, port: int, why: str) -> None:
    """Replace this process by a new one on the same port; unfinished responses are lost."""
    sys.stderr.write(f"interlace: {why}; the explorer starts anew\n")
    sys.stderr.flush()
    again = ["explore", "--db", url, "--port", str(port), "--no-browser"]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "orchestrator", *again])


def build(queries: tuple[StoredQuery, ...], path: Path) -> Guard:
    """The application: Datasette on that file, behind the guard.

    Raises:
        RefusedError: Datasette is not installed.
    """
    try:
        from datasette.app import Datasette
        from datasette.database import Database
        from datasette.plugins import pm as plugins

        from orchestrator.explore import cells
    except ImportError as error:
        raise RefusedError(
            f"interlace explore needs Datasette ({error}); install it with pip install 'interlace[explore]'"
        ) from error
    # It prints the stack and every variable of each mistaken statement. It must not be imported before the application.
    vars(importlib.import_module("datasette.handle_exception")).update(rich=None, traceback=_OneLine)
    datasette = Datasette(
        metadata=metadata(queries, path=str(path)),
        settings=_SETTINGS,
        template_dir=str(_FOLDER / "templates"),
        static_mounts=[(STATIC, str(_FOLDER / "static"))],
        memory=False,
    )
    for name in [name for name in datasette.databases if name != "_internal"]:
        datasette.remove_database(name)  # it opens an empty one if it is given no file
    datasette.jinja_env.add_extension(Nonces)
    if not plugins.is_registered(cells):
        plugins.register(cells)
    database = Database(datasette, path=str(path), is_mutable=True)  # a run may be writing: never `immutable`
    database.connect = _reader(path)
    database.table_counts = partial(_no_counts, database)
    datasette.add_database(database, name=NAME)
    site = Site(queries={query.name: query for query in queries}, resolve_run=lambda name: _run_id(path, name))
    return Guard(inner=datasette.app(), site=site)


class _OneLine:
    """Replaces the module `traceback`: a query that took too long must not print a stack on the terminal."""

    @staticmethod
    def print_exc() -> None:
        kind, error, _ = sys.exc_info()
        name = "" if kind is None else kind.__name__
        words = shown_line(str(error))[:500]
        sys.stderr.write(f"interlace: explorer: {name}: {words}\n")


def _reader(path: Path) -> Callable[..., sqlite3.Connection]:
    """Datasette's way to open the file, without its way to open it for writing."""

    def connect(*, write: bool = False) -> sqlite3.Connection:
        if write:
            raise PermissionError(f"{path}: the explorer only reads")
        connection = connect_readonly(path, any_thread=True, factory=LimitedConnection)
        limit(connection)
        return connection

    return connect


async def _no_counts(database: Any, limit: int = 0) -> dict[str, None]:
    """Replaces the counting of all tables for the first page, which no time limit stops (40 s at a million rows)."""
    return dict.fromkeys(await database.table_names())


def _run_id(path: Path, name: str) -> str | None:
    with closing(connect_readonly(path)) as connection:
        try:
            return choose_run(connection.execute(RUNS_SQL), name)
        except RunNotFoundError:
            return None


def _serve(application: Guard, found: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        application,
        log_level="warning",
        lifespan="on",
        access_log=False,
        limit_concurrency=64,
        timeout_graceful_shutdown=3,
    )
    try:
        uvicorn.Server(config).run(sockets=[found])
    except KeyboardInterrupt:
        return  # the way to end it
