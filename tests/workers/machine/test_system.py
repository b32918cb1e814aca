"""The calls into Darwin's library: their order, their arguments and their failures, on a stand-in for the library."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workers.machine.processes import own_pids
from workers.machine.system import LocalSystem, NotThere, Unreadable, reaped_cpu_s, tool_path
from workers.machine.tool_folders import widened

KEY = "com.apple.system.thermalpressurelevel"


class Library:
    """Answers as libSystem does; remembers the calls."""

    def __init__(
        self, *, register: int = 0, get: int = 0, state: int = 2, rusage: int = 0, virtual: int | None = 0
    ) -> None:
        self._register, self._get, self._state, self._rusage = register, get, state, rusage
        self._virtual = virtual  # None: the system has no such name
        self.calls: list[str] = []

    def sysctlbyname(self, name: bytes, value: Any, size: Any, new: None, new_size: ctypes.c_size_t) -> int:
        assert (name, new, new_size.value) == (b"kern.hv_vmm_present", None, 0)
        assert ctypes.cast(size, ctypes.POINTER(ctypes.c_size_t))[0] == ctypes.sizeof(ctypes.c_int)
        if self._virtual is None:
            return -1
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = self._virtual
        return 0

    def proc_listpids(self, kind: int, parent: int, found: Any, size: int) -> int:
        assert (kind, size) == (6, ctypes.sizeof(found))
        children = {4711: [50, 51], 50: [60]}.get(parent, [])
        found[: len(children)] = children
        return self._rusage or len(children) * ctypes.sizeof(ctypes.c_int)

    def mach_timebase_info(self, info: Any) -> int:
        info[0], info[1] = 125, 3  # Apple silicon's
        return 0

    def notify_register_check(self, key: bytes, token: Any) -> int:
        assert key == KEY.encode()
        self.calls.append("register")
        ctypes.cast(token, ctypes.POINTER(ctypes.c_int))[0] = 7
        return self._register

    def notify_get_state(self, token: ctypes.c_int, state: Any) -> int:
        assert token.value == 7
        self.calls.append("get")
        ctypes.cast(state, ctypes.POINTER(ctypes.c_uint64))[0] = self._state
        return self._get

    def notify_cancel(self, token: ctypes.c_int) -> int:
        assert token.value == 7
        self.calls.append("cancel")
        return 0

    def proc_pid_rusage(self, pid: int, flavour: int, buffer: Any) -> int:
        assert (pid, flavour) == (4711, 4)
        raw = bytearray(len(buffer))
        raw[64:72] = (15 * 2**30).to_bytes(8, sys.byteorder)  # resident: misses Metal's memory
        raw[72:80] = (148 * 2**30).to_bytes(8, sys.byteorder)  # the physical footprint
        raw[96:104] = (24_000_000 * 60).to_bytes(8, sys.byteorder)  # ticks of its children as a user
        raw[104:112] = (24_000_000 * 15).to_bytes(8, sys.byteorder)  # and in the system
        raw[240:248] = (150 * 2**30).to_bytes(8, sys.byteorder)  # its highest
        buffer.raw = bytes(raw)
        return self._rusage


def mac(monkeypatch: pytest.MonkeyPatch, library: Library) -> LocalSystem:
    monkeypatch.setattr("workers.machine.system.sys.platform", "darwin")
    monkeypatch.setattr("workers.machine.system._system_library", lambda: library)
    return LocalSystem()


def test_the_state_of_a_key_is_read_and_its_token_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(state=3)
    assert mac(monkeypatch, library).notify_state(KEY) == 3
    assert library.calls == ["register", "get", "cancel"]


@pytest.mark.parametrize(
    ("library", "says", "calls"),
    [
        (Library(register=9), "notify_register_check.*status 9", ["register"]),
        (Library(get=2), "notify_get_state.*status 2", ["register", "get", "cancel"]),
    ],
)
def test_a_failing_call_is_a_reason_and_no_zero(
    monkeypatch: pytest.MonkeyPatch, library: Library, says: str, calls: list[str]
) -> None:
    with pytest.raises(Unreadable, match=says):
        mac(monkeypatch, library).notify_state(KEY)
    assert library.calls == calls


def test_the_footprint_is_the_one_that_holds_metals_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mac(monkeypatch, Library()).footprint_bytes(4711) == 148 * 2**30
    with pytest.raises(Unreadable, match="another user's"):
        mac(monkeypatch, Library(rusage=-1)).footprint_bytes(4711)


def test_its_highest_over_the_process_s_life_is_another_field(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mac(monkeypatch, Library()).peak_footprint_bytes(4711) == 150 * 2**30


def test_in_a_virtual_mac_the_key_s_0_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(virtual=1, state=0)
    with pytest.raises(NotThere, match="a virtual Mac"):
        mac(monkeypatch, library).notify_state(KEY)
    assert library.calls == []
    assert mac(monkeypatch, Library(virtual=None, state=0)).notify_state(KEY) == 0


def test_the_time_of_children_comes_in_ticks_of_the_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    mac(monkeypatch, Library())
    assert reaped_cpu_s(4711) == pytest.approx(75.0)
    mac(monkeypatch, Library(rusage=-1))
    with pytest.raises(Unreadable, match="another user's"):
        reaped_cpu_s(4711)


def test_a_tree_of_processes_is_listed_by_one_call_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    mac(monkeypatch, Library())
    monkeypatch.setattr("workers.machine.processes.ctypes.CDLL", lambda path: Library())
    monkeypatch.setattr("workers.machine.processes.psutil.Process", lambda pid: SimpleNamespace(pid=pid))
    assert own_pids(4711) == {4711, 50, 51, 60}


@pytest.mark.parametrize("library", [Library(rusage=-1), SimpleNamespace()])
def test_without_that_call_each_process_is_asked_for_its_parent(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def children(self, *, recursive: bool) -> list["Process"]:
            assert recursive
            return [Process(60)]

    mac(monkeypatch, Library())
    monkeypatch.setattr("workers.machine.processes.ctypes.CDLL", lambda path: library)
    monkeypatch.setattr("workers.machine.processes.psutil.Process", Process)
    assert own_pids(4711) == {4711, 60}


def test_tools_speak_the_language_that_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac whose numbers have decimal commas prints `used = 1024,50M`."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LC_NUMERIC", "de_DE.UTF-8")
    assert LocalSystem().run("sh", "-c", 'printf "%s" "$LC_ALL"') == "C"
    assert os.environ["LC_ALL"] == "de_DE.UTF-8"


@pytest.mark.parametrize("path", ["/nowhere", ""])
def test_a_tool_is_found_where_cron_and_launchd_do_not_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    (tmp_path / "ioreg").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "ioreg").chmod(0o755)
    monkeypatch.setattr("workers.machine.tool_folders.TOOL_FOLDERS", (str(tmp_path),))
    monkeypatch.setenv("PATH", path)
    assert tool_path("ioreg") == str(tmp_path / "ioreg")
    assert tool_path("sysctl-of-nobody") == "sysctl-of-nobody"


@pytest.mark.parametrize("path", ["/usr/bin:/bin", "/usr/bin:/bin:/usr/sbin:/sbin", ""])
def test_cron_and_launchd_find_homebrew_and_what_uv_installed(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("HOME", "/Users/ada")
    folders = widened(path).split(":")
    assert {"/usr/sbin", "/opt/homebrew/bin", "/Users/ada/.local/bin"} <= set(folders)
    assert folders[: path.count(":") + 1] == path.split(":") or not path
    assert "" not in folders  # the folder at hand
    assert widened(widened(path)) == widened(path)


def test_a_command_hands_the_wider_path_to_what_it_starts(tmp_path: Path) -> None:
    """As launchd starts it: a program of the user's that a run needs is found by its name."""
    (tmp_path / ".local" / "bin").mkdir(parents=True)
    code = "import shutil; from orchestrator import cli\ntry: cli.main()\n"
    code += "except SystemExit: print(shutil.which('of-ours'))"
    (tmp_path / ".local" / "bin" / "of-ours").write_text("#!/bin/sh\n")
    (tmp_path / ".local" / "bin" / "of-ours").chmod(0o755)
    environment = os.environ | {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines()[-1] == str(tmp_path / ".local" / "bin" / "of-ours")


def test_a_tool_on_the_path_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in ("first", "last"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "macmon").write_text("#!/bin/sh\n")
        (tmp_path / folder / "macmon").chmod(0o755)
    monkeypatch.setattr("workers.machine.tool_folders.TOOL_FOLDERS", (str(tmp_path / "last"),))
    monkeypatch.setenv("PATH", str(tmp_path / "first"))
    assert tool_path("macmon") == str(tmp_path / "first" / "macmon")
