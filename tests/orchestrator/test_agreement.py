"""Plans that nothing shows to be the user's own: shown whole, and executed only once the user agrees at a terminal."""

import os
import pty
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from orchestrator.cli import cli
from orchestrator.errors import InputError, NotOursError
from orchestrator.running.planned_here import LIST_NAME, is_remembered, remember
from orchestrator.state_folder import state_folder
from tests.orchestrator.desk import Desk, hostile_file, make_hostile

QUESTION = "Execute all of this here"


class Terminal:
    """A terminal on which somebody has typed already; what the command wrote to it is read while it runs."""

    def __init__(self) -> None:
        self._master, self._slave = pty.openpty()
        self._read: list[bytes] = []
        self._reader = threading.Thread(target=self._drain)
        self._reader.start()

    def type(self, answer: str) -> None:
        os.write(self._master, f"{answer}\n".encode())

    def streams(self) -> tuple[int, int]:
        return os.dup(self._slave), os.dup(self._slave)

    def close(self) -> str:
        """All that was written."""
        os.close(self._slave)
        self._reader.join()
        os.close(self._master)
        return b"".join(self._read).decode()

    def _drain(self) -> None:
        while True:
            try:
                found = os.read(self._master, 4096)
            except OSError:  # Linux's word for a terminal whose other side is closed
                return
            if not found:
                return
            self._read.append(found)


def at_terminal(answer: str, *arguments: str) -> tuple[BaseException | int | None, str]:
    """Run a command whose standard streams are a terminal; return its result and the terminal's text."""
    terminal = Terminal()
    terminal.type(answer)
    read, write = terminal.streams()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(read) as stdin, os.fdopen(write, "w") as stdout:
        patch.setattr("sys.stdin", stdin)
        patch.setattr("sys.stdout", stdout)
        try:
            found: BaseException | int | None = cli.main(list(arguments), standalone_mode=False)
        except InputError as error:
            found = error
    return found, terminal.close()


@pytest.fixture
def strangers(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, Path]:
    """A run that waits in a database which somebody else made, in a state folder of his own."""
    own = os.environ["INTERLACE_STATE"]
    monkeypatch.setenv("INTERLACE_STATE", str(tmp_path / "his"))
    run_id = desk.planned()
    assert desk("db", "backup", str(tmp_path / "strange.db")).exception is None
    desk.forget()
    monkeypatch.setenv("INTERLACE_STATE", own)
    return run_id, tmp_path / "strange.db"


def trials(desk: Desk, database: Path) -> int:
    desk.db = database
    return int(desk.sql("SELECT count(*) FROM trial")[0][0])


def refused(found: Result) -> BaseException:
    assert found.exception is not None
    return found.exception


def test_a_strangers_database_executes_nothing_of_its_own(desk: Desk, strangers: tuple[str, Path]) -> None:
    run_id, database = strangers
    desk.db = database
    with closing(sqlite3.connect(database)) as connection, connection:
        make_hostile(connection, hashed=True)
        connection.execute("UPDATE run SET status = 'planned'")
    for options in ([], ["--no-preflight"]):
        desk.sql("UPDATE queue_entry SET state = 'waiting'")
        worked = desk("work", "--db", str(database), "--quiet", *options)
        assert worked.return_value == 3, worked.output
        assert "nothing shows that its plan was composed by you on this machine" in worked.output.replace("\n", " ")
    error = refused(desk("resume", run_id, "--db", str(database)))
    assert isinstance(error, InputError)
    assert "needs your agreement to what it would execute" in str(error)
    shown = desk("resume", run_id, "--db", str(database)).output
    assert "engine.log_command=sh -c 'touch pwned'" in shown
    assert "not known to be planned here" in shown
    assert not (desk.folder / "pwned").exists()
    assert trials(desk, database) == 0


def test_it_is_gone_on_with_once_it_was_agreed_to(desk: Desk, strangers: tuple[str, Path]) -> None:
    run_id, database = strangers
    words = ("resume", run_id, "--db", str(database), "--quiet")
    declined, shown = at_terminal("n", *words)
    assert "not agreed to; nothing was executed or stored" in str(declined)
    assert f"{QUESTION}? [y/N]" in shown
    assert "engine.name=simulated" in shown
    assert trials(desk, database) == 0
    assert isinstance(refused(desk(*words)), InputError)  # it stays refused
    agreed, _ = at_terminal("y", *words)
    assert agreed == 0
    assert trials(desk, database) > 0


def test_agreement_is_for_that_plan_alone() -> None:
    remember("run-1", "a" * 64)
    assert is_remembered("run-1", "a" * 64)
    assert not is_remembered("run-1", "b" * 64)
    assert not is_remembered("run-2", "a" * 64)
    assert (state_folder() / LIST_NAME).stat().st_mode & 0o077 == 0


def test_a_line_cut_short_spoils_no_other() -> None:
    remember("run-1", "a" * 64)
    with (state_folder() / LIST_NAME).open("a") as file:
        file.write("run-2 aaa")
    remember("run-3", "c" * 64)
    assert is_remembered("run-1", "a" * 64)
    assert is_remembered("run-3", "c" * 64)
    assert not is_remembered("run-2", "aaa" + "a" * 61)


def test_a_copy_of_ones_own_database_needs_no_agreement(desk: Desk, tmp_path: Path) -> None:
    run_id = desk.planned()
    assert desk("db", "backup", str(tmp_path / "moved.db")).exception is None
    assert desk("resume", run_id, "--db", str(tmp_path / "moved.db"), "--quiet").exception is None
    assert trials(desk, tmp_path / "moved.db") > 0


def test_a_list_that_cannot_be_written_is_reported_before_anything_is_stored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("INTERLACE_STATE", str(tmp_path / "file"))
    found = desk("queue", "add", "engine=simulated", "workload=quick", "design.rounds=6")
    assert "name a folder of yours with INTERLACE_STATE" in str(refused(found))
    assert desk.sql("SELECT count(*) FROM run") == [(0,)]


def test_an_imported_plan_is_agreed_to_at_the_terminal(desk: Desk) -> None:
    run_id = desk.planned()
    file = desk.exported(run_id)
    desk.forget()
    assert desk("db", "import", str(file)).exception is None
    declined, shown = at_terminal("n", "run", "--from", run_id, "--quiet")
    assert isinstance(declined, InputError)
    assert f"{QUESTION}, as a new run? [y/N]" in shown
    assert desk.sql("SELECT count(*) FROM run") == [(1,)]
    empty, _ = at_terminal("", "run", "--from", run_id, "--quiet")  # what is not agreed to is declined
    assert isinstance(empty, InputError)
    agreed, _ = at_terminal("y", "run", "--from", run_id, "--quiet")
    assert agreed == 0
    assert desk.sql("SELECT count(*) FROM run WHERE status = 'done'") == [(1,)]


def test_without_a_terminal_only_yes_is_an_agreement(desk: Desk) -> None:
    run_id, file = hostile_file(desk)
    assert desk("db", "import", str(file)).exception is None
    for answer in ("y\n", ""):
        error = refused(desk("run", "--from", run_id, input=answer))
        assert "there is no terminal to ask on" in str(error)
    assert isinstance(refused(desk("resume", run_id, "--yes")), NotOursError)  # what was imported is never gone on with
