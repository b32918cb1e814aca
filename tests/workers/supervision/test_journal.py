"""The journal knows every process of a run that may still live, by pid and start time."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from workers.machine.process_identity import PORT_MARK, marks_orphan, owner_mark, started_s
from workers.supervision.journal import (
    Content,
    Journal,
    Spawned,
    describe,
    find_orphans,
    is_orphaned,
    look_into,
    read_journal,
    still_runs,
)

# Spawns a worker that ignores every polite request to end, and dies without a word.
ORPHANING_RUN = """
import os, sys
from pathlib import Path
from orchestrator.plan import Deadlines
from workers.supervision.worker_process import WorkerProcess, WorkerSpec
from workers.protocol import Load
folder = Path(sys.argv[1])
worker = WorkerProcess(WorkerSpec(
    run_id="run-1", arm="arm-1", log_path=folder / "log", journal_path=folder / "journal"))
worker.load(Load(target="workers.engines.simulated.Simulated", settings={"fault": sys.argv[2] or None},
    checkpoint={}, draft=None, sampling={}), Deadlines())
print(worker.pid, flush=True)
os._exit(1)
"""


@pytest.fixture
def own(tmp_path: Path) -> Spawned:
    """This very process as a journal's entry."""
    return describe(psutil.Process(), run_id="run-1", arm="arm-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal"


def test_a_process_stays_in_the_journal_until_it_is_gone(path: Path, own: Spawned) -> None:
    other = replace(own, pid=own.pid + 1)
    journal = Journal(path)
    assert read_journal(path) == []
    journal.spawned(own)
    journal.spawned(other)
    assert read_journal(path) == [own, other]
    journal.gone(own)
    assert read_journal(path) == [other]


def test_a_process_whose_leader_is_outside_the_pid_namespace_is_journaled(path: Path, own: Spawned) -> None:
    """A container without an init of its own: the kernel gives 0 for its processes' group and session."""
    inside = replace(own, pgid=0, sid=0)
    Journal(path).spawned(inside)
    assert look_into(path) == Content(entries=(inside,))


def test_a_line_that_a_crash_cut_short_is_passed_over(path: Path, own: Spawned) -> None:
    Journal(path).spawned(own)
    with path.open("ab") as file:
        file.write(b'{"event": "spawned", "pid": 12')
    assert read_journal(path) == [own]


FOREIGN_LINES = (
    b"null",
    b"1",
    b"{}",
    b"[]",
    b'"spawned"',
    b"\xff\xfe",
    b"[" * 100_000,
    b"9" * 5000,
    b'{"event": "spawned", "pid": 1, "create_time": 1}',
    b'{"event": "gone", "pid": "x", "create_time": {}}',
    b'{"event": "gone", "pid": [], "create_time": 1}',
    b'{"event": "gone", "pid": 1, "create_time": 1e999}',
    b'{"event": "left", "pid": 1, "create_time": 1.0}',
)


@pytest.mark.parametrize("line", FOREIGN_LINES)
def test_a_line_that_is_not_a_journal_s_is_skipped_with_a_note(line: bytes, path: Path, own: Spawned) -> None:
    Journal(path).spawned(own)
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert look_into(path) == Content(entries=(own,), notes=(f"{path}: 1 line is not a journal's and skipped",))
    Journal(path).compact()
    assert look_into(path) == Content(entries=(own,))


@pytest.mark.parametrize(
    ("name", "value"),
    [("pid", 1 << 64), ("pid", True), ("sid", -1), ("arm", 3), ("port", "80"), ("exe", []), ("create_time", "now")],
)
def test_a_record_with_a_value_of_another_kind_is_skipped(name: str, value: object, path: Path, own: Spawned) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"event": "spawned", **asdict(own), name: value}) + "\n")
    assert look_into(path).entries == ()
    assert len(look_into(path).notes) == 1


def test_a_record_after_half_a_line_has_a_line_of_its_own(path: Path, own: Spawned) -> None:
    Journal(path).spawned(own)
    with path.open("ab") as file:
        file.write(b'{"event": "spawned", "pid": 12')
    other = replace(own, pid=own.pid + 1)
    Journal(path).spawned(other)
    assert read_journal(path) == [own, other]


def test_a_full_disk_leaves_no_half_record(path: Path, own: Spawned, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(path).spawned(own)
    before, write = path.read_bytes(), os.write

    def filling_up(fd: int, content: bytes) -> int:
        if len(content) > 20:
            return write(fd, content[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", lambda fd, content: filling_up(fd, content[:30]))
    with pytest.raises(OSError, match="No space left"):
        Journal(path).spawned(replace(own, pid=own.pid + 1))
    assert path.read_bytes() == before


def test_a_journal_that_is_no_file_is_noted_and_not_waited_for(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    content = look_into(path)
    assert content.entries == ()
    assert "a pipe is there" in content.notes[0]


def test_a_line_without_a_port_is_still_read(path: Path, own: Spawned) -> None:
    Journal(path).spawned(replace(own, port=8123))
    assert read_journal(path) == [replace(own, port=8123)]
    path.write_bytes(path.read_bytes().replace(b', "port": 8123', b""))
    assert b"port" not in path.read_bytes()
    assert read_journal(path) == [own]


def test_a_server_s_port_is_read_from_its_environment(own: Spawned) -> None:
    assert own.port is None
    command = [sys.executable, "-c", "print(flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for mark, port in (("8123", 8123), ("", None), ("all", None)):
        with subprocess.Popen(command, env=os.environ | {PORT_MARK: mark}, **pipes) as server:
            assert server.stdout is not None
            server.stdout.readline()  # it has become its program; before, its environment can be empty
            assert describe(psutil.Process(server.pid), run_id="r", arm="a").port == port
            server.kill()


def test_an_entry_says_who_the_process_is(own: Spawned) -> None:
    assert own.exe == psutil.Process().exe()
    assert own.cwd == str(Path.cwd())
    assert own.parent_pid == psutil.Process().pid


def test_a_process_is_known_by_pid_and_start_time_together(own: Spawned) -> None:
    assert still_runs(own)
    assert not still_runs(replace(own, create_time=own.create_time - 60))
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        start = started_s(psutil.Process(gone.pid))
    assert not still_runs(replace(own, pid=gone.pid, create_time=start))


def test_a_worker_of_a_run_that_lives_is_no_orphan(path: Path, own: Spawned) -> None:
    Journal(path).spawned(own)
    assert find_orphans(path) == []


def test_a_living_process_with_a_dead_parent_is_an_orphan_unless_its_pid_was_reused(path: Path, own: Spawned) -> None:
    orphan = replace(own, parent_create_time=own.parent_create_time - 60)
    Journal(path).spawned(orphan)
    assert find_orphans(path) == [orphan]
    Journal(path).gone(orphan)
    Journal(path).spawned(replace(orphan, create_time=own.create_time - 60))
    assert find_orphans(path) == []


def run_and_die(folder: Path, fault: str) -> int:
    """The pid of the worker that a run left behind when it died."""
    command = [sys.executable, "-c", ORPHANING_RUN, str(folder), fault]
    return int(subprocess.run(command, capture_output=True, check=False, timeout=60).stdout)


def test_a_worker_that_outlives_its_run_is_found(tmp_path: Path) -> None:
    pid = run_and_die(tmp_path, "slow_stop")
    (orphan,) = find_orphans(tmp_path / "journal")
    assert (orphan.pid, orphan.arm, orphan.pgid, orphan.sid) == (pid, "arm-1", pid, pid)
    psutil.Process(pid).kill()


def test_a_worker_ends_with_its_run(tmp_path: Path) -> None:
    run_and_die(tmp_path, "")
    deadline = time.monotonic() + 20
    while find_orphans(tmp_path / "journal") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert find_orphans(tmp_path / "journal") == []


def test_the_journal_keeps_what_another_pid_namespace_wrote_and_judges_none_of_it(path: Path, own: Spawned) -> None:
    """The pids of a container that shares the database name nothing here: only what is seen from here can be judged."""
    theirs = replace(own, pid_namespace=(own.pid_namespace or 0) + 1, pid=own.pid + 1, parent_create_time=0.0)
    living = replace(theirs, pid=own.pid)
    for entry in (theirs, living):
        Journal(path).spawned(entry)
    Journal(path).compact()
    mine = own.pid_namespace is not None  # a Mac has no such namespaces
    assert read_journal(path) == ([theirs, living] if mine else [living])
    assert [is_orphaned(entry) for entry in (theirs, living)] == [False, not mine]


def test_the_journal_forgets_whoever_no_longer_runs(path: Path, own: Spawned) -> None:
    Journal(path).spawned(own)
    Journal(path).spawned(replace(own, create_time=own.create_time - 60))
    Journal(path).compact()
    assert read_journal(path) == [own]
    assert len(path.read_bytes().splitlines()) == 1


def test_several_runs_write_at_once_and_lose_no_line(path: Path, own: Spawned) -> None:
    """While one of them compacts the file."""
    script = (
        "import sys\nfrom dataclasses import replace\nfrom pathlib import Path\nimport psutil\n"
        "from workers.supervision.journal import Journal, describe\n"
        "own = describe(psutil.Process(int(sys.argv[2])), run_id=sys.argv[3], arm='a')\n"
        "for number in range(40):\n"
        "    Journal(Path(sys.argv[1])).spawned(replace(own, create_time=own.create_time + number / 1000))\n"
        "    number % 10 or Journal(Path(sys.argv[1])).compact()\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", script, str(path), str(own.pid), f"run-{n}"]) for n in range(3)]
    assert [run.wait(timeout=60) for run in runs] == [0, 0, 0]
    assert len(read_journal(path)) == 40  # the same processes thrice, known by pid and start time


@pytest.mark.parametrize("mark", ["", "x", "1:", "1:y", ":", "::", "1:y:", "4194304:1767225600.0"])
def test_a_mark_that_names_no_owner_proves_nothing(mark: str) -> None:
    assert not marks_orphan(mark)


def test_a_mark_names_its_owner() -> None:
    assert not marks_orphan(owner_mark())
    pid, start_s, boot_id = owner_mark().split(":")
    assert marks_orphan(f"{pid}:{float(start_s) - 60}:{boot_id}")


def test_one_that_is_gone_takes_no_other_process_of_its_pid_along(path: Path, own: Spawned) -> None:
    """The number may have been used again meanwhile: only pid and start time together name a process."""
    earlier = replace(own, create_time=own.create_time - 60)
    journal = Journal(path)
    journal.spawned(earlier)
    journal.spawned(own)
    journal.gone(earlier)
    assert read_journal(path) == [own]
    journal.spawned(earlier)
    journal.gone(own)
    assert read_journal(path) == [earlier]


def test_a_process_of_another_boot_is_forgotten(path: Path, own: Spawned) -> None:
    other = replace(own, pid=own.pid + 1, boot_id="an earlier boot")
    Journal(path).spawned(other)
    Journal(path).spawned(own)
    assert read_journal(path) == [own]
    assert not still_runs(replace(own, boot_id="an earlier boot"))


@pytest.mark.parametrize(
    ("name", "value", "is_read"),
    [
        *(("pid", value, True) for value in (1, 2**31 - 1)),
        *(("pid", value, False) for value in (0, 2**31, 1.0, None)),
        *(("sid", value, True) for value in (0, 2**31 - 1)),
        *(("sid", value, False) for value in (-1, 2**31, False)),
        *(("port", value, True) for value in (None, 1, 65535)),
        *(("port", value, False) for value in (0, 65536, True)),
        *(("create_time", value, True) for value in (0, 1.5)),
        *(("create_time", value, False) for value in (float("inf"), float("nan"), True, None)),
        *(("cwd", value, True) for value in (None, "/")),
        ("cwd", 3, False),
        ("run_id", "", True),
        *(("run_id", value, False) for value in (None, 3)),
    ],
)
def test_a_value_is_read_up_to_its_bounds(name: str, value: object, *, is_read: bool, path: Path, own: Spawned) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"event": "spawned", **asdict(own), name: value}) + "\n")
    assert [getattr(entry, name) for entry in look_into(path).entries] == ([value] if is_read else [])


def test_lines_that_are_skipped_are_counted_without_the_empty_ones(path: Path, own: Spawned) -> None:
    Journal(path).spawned(own)
    with path.open("ab") as file:
        file.write(b"\n\nnull\n  \n{}\n")
    assert look_into(path).notes == (f"{path}: 2 lines are not a journal's and skipped",)


def test_each_record_is_a_line_and_none_is_empty(path: Path, own: Spawned) -> None:
    journal = Journal(path)
    for number in range(3):
        journal.spawned(replace(own, pid=own.pid + number))
    lines = path.read_bytes().split(b"\n")
    assert [bool(line) for line in lines] == [True, True, True, False]


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_record_is_in_the_file_that_is_there_when_the_lock_is_had(
    how: str, path: Path, own: Spawned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run compacts the journal, or a person removes it, while this one waits for the lock."""
    Journal(path).spawned(own)
    lock, left = fcntl.flock, ["one time"]

    def waited(fd: int, operation: int) -> None:
        lock(fd, operation)
        if left:
            left.clear()
            path.unlink()
            if how == "replaced":
                path.write_bytes(b"")

    monkeypatch.setattr(fcntl, "flock", waited)
    other = replace(own, pid=own.pid + 1)
    Journal(path).spawned(other)
    assert read_journal(path) == [other]
