"""A run is held by the process in its row, and by a lock that is seen from every PID namespace."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from db.live import life
from db.session import transaction
from orchestrator.errors import HeldError
from orchestrator.running.events import Observer
from orchestrator.running.execution import carry_out
from orchestrator.running.leases import is_held, leased
from orchestrator.running.recorder import Recorder
from orchestrator.running.stored import refuse_if_held
from workers.machine.process_identity import Lease

HOLDER = """
import sys
from pathlib import Path
from sqlalchemy import create_engine
from orchestrator.running.leases import leased
with leased(create_engine(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_whose_pid_looks_dead_is_held_while_its_lock_is(recorder: Recorder, tmp_path: Path) -> None:
    """As of a container that shares the database: what its pid names here is nobody, or somebody else."""
    recorder.take_lease(Lease(pid=2**22 + 1, process_started_at=1.0, boot_id=None))
    database, run_id = recorder.database, recorder.run_id

    def held() -> bool:
        return is_held(database, run_id, life(database, run_id))

    assert not held()
    command = [sys.executable, "-c", HOLDER, str(database.url), run_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert held()
        with pytest.raises(HeldError, match="is being run by another process: wait for it, or stop it first"):
            refuse_if_held(database, run_id)
        with pytest.raises(HeldError, match="by another process"):
            carry_out(recorder, observer=Observer())
        holder.send_signal(signal.SIGKILL)
    assert not held()
    carry_out(recorder, observer=Observer())
    assert (life(database, run_id).status, held()) == ("done", False)
    assert [*(tmp_path / "state" / "leases").iterdir()] == []


def test_a_run_is_held_by_the_process_that_executes_it_until_its_end_is_stored(recorder: Recorder) -> None:
    seen: list[bool] = []

    class Looks(Observer):
        def checking(self, arm: str) -> None:
            seen.append(is_held(recorder.database, recorder.run_id, life(recorder.database, recorder.run_id)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(recorder, observer=Looks())
    assert (seen, life(recorder.database, recorder.run_id).status) == ([True], "interrupted")


def test_where_nothing_can_be_locked_the_row_alone_counts(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    recorder.take_lease(Lease(pid=2**22 + 1, process_started_at=1.0, boot_id=None))
    with leased(recorder.database, recorder.run_id):
        assert not is_held(recorder.database, recorder.run_id, life(recorder.database, recorder.run_id))
        with transaction(recorder.database):
            pass
