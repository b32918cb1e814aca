"""A spawned process's descendants are all found and ended, and nobody else is."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from workers.supervision.family import Family

SLEEP = "import time; time.sleep(60)"
# A child in the leader's session and one in a session of its own; their pids are printed, then the leader waits.
LEADER = f"""
import subprocess, sys, time
own, away = (subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=away) for away in (False, True))
print(own.pid, away.pid, flush=True)
{SLEEP}
"""


class Tree:
    """A leader with two children; the leader is not ours to wait for in the code under test."""

    def __init__(self) -> None:
        self.leader = subprocess.Popen(
            [sys.executable, "-c", LEADER], start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        assert self.leader.stdout is not None
        self.own, self.away = (psutil.Process(int(pid)) for pid in self.leader.stdout.readline().split())
        self.family = Family(psutil.Process(self.leader.pid))

    def pids(self) -> set[int]:
        return {process.pid for process in self.family.living()}

    def kill_leader(self) -> None:
        self.leader.kill()
        self.leader.wait()

    def close(self) -> None:
        self.kill_leader()
        assert self.leader.stdout is not None
        self.leader.stdout.close()
        for process in (self.own, self.away):
            if process.is_running():
                process.kill()


@pytest.fixture
def tree() -> Iterator[Tree]:
    tree = Tree()
    yield tree
    tree.close()


def test_a_child_that_left_the_session_is_known_from_a_snapshot(tree: Tree) -> None:
    assert tree.pids() == {tree.leader.pid, tree.own.pid}
    tree.family.snapshot()
    assert tree.pids() == {tree.leader.pid, tree.own.pid, tree.away.pid}


def test_children_are_found_after_their_parents_death(tree: Tree) -> None:
    tree.family.snapshot()
    tree.kill_leader()
    assert tree.pids() == {tree.own.pid, tree.away.pid}


def test_all_are_ended_and_verified(tree: Tree) -> None:
    tree.family.snapshot()
    assert not tree.family.wait_gone(0.1)
    tree.kill_leader()
    tree.family.signal(signal.SIGKILL)
    assert tree.family.wait_gone(10)
    assert not tree.family.living()


def test_a_stranger_is_never_a_member(tree: Tree) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as stranger:
        tree.family.snapshot()
        tree.family.signal(signal.SIGKILL)
        assert stranger.poll() is None
        stranger.kill()


class Reused(psutil.Process):
    """A process whose number now belongs to another one."""

    def is_running(self) -> bool:
        return False


def test_a_reused_pid_is_not_taken_for_the_leader(tree: Tree) -> None:
    """Nothing in the session of that number is ours."""
    family = Family(Reused(tree.leader.pid))
    assert family.living() == []
    family.signal(signal.SIGKILL)
    assert tree.own.is_running()
    assert tree.leader.poll() is None


def test_the_dead_who_wait_to_be_reaped_do_not_count(tree: Tree) -> None:
    tree.own.kill()
    tree.leader.kill()
    assert tree.family.wait_gone(10)
    assert tree.leader.returncode is None  # nobody has waited for it
