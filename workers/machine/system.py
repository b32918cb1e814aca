"""The seam to the machine: commands, files and the few calls into system libraries, behind one protocol.

Everything that reads the machine takes a `System`, so that recorded outputs stand in for a Mac in tests.
"""

import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

from workers.machine.processes import PROCESS_FAULTS
from workers.machine.tool_folders import widened

COMMAND_TIMEOUT_S = 5.0


class Unreadable(Exception):
    """Something cannot be read here; the message is the reason that is stored."""


class NotThere(Unreadable):
    """This machine does not have it: no other tool needs to be asked."""


class System(Protocol):
    """Everything that readings need from the machine. Every method raises `Unreadable` with the reason."""

    @property
    def platform(self) -> str:
        """`sys.platform`: darwin, linux."""

    @property
    def root_pid(self) -> int:
        """The process whose tree is ours: what it and its descendants do is not others' doing."""

    def run(self, *command: str) -> str:
        """A command's standard output."""

    def read(self, path: str) -> str:
        """A file's text, stripped."""

    def list(self, pattern: str) -> list[str]:
        """The absolute paths that match a pattern below the root, sorted; none match: none."""

    def notify_state(self, key: str) -> int:
        """The state of a Darwin notification key. A key that does not exist answers 0 as well.

        Raises:
            NotThere: a virtual Mac, where nothing sets the keys of the hardware.
        """

    def footprint_bytes(self, pid: int) -> int:
        """macOS's physical footprint of one of the user's own processes: Metal memory included, unlike RSS."""

    def peak_footprint_bytes(self, pid: int) -> int:
        """The highest that macOS's physical footprint of such a process has ever been."""


Found = float | str | tuple[float, str]
FieldReader = Callable[[System], Found]  # raises Unreadable
CounterReader = Callable[[System], dict[str, float]]  # totals that only grow, by process or part


def tool_path(name: str) -> str:
    """The file that a tool's name stands for: on the PATH, else in the folders of the system and of Homebrew.

    A name that is found nowhere is given back, so that starting it fails with the system's own error.
    """
    return shutil.which(name, path=widened(os.environ.get("PATH", os.defpath))) or name


class LocalSystem:
    """This machine.

    Args:
        root_pid: the root of our tree; None: this process.
    """

    def __init__(self, *, root_pid: int | None = None) -> None:
        self.root_pid = os.getpid() if root_pid is None else root_pid

    @property
    def platform(self) -> str:
        return sys.platform

    def run(self, *command: str) -> str:
        try:
            done = subprocess.run(
                (tool_path(command[0]), *command[1:]),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=COMMAND_TIMEOUT_S,
                check=False,
                env=os.environ | {"LC_ALL": "C"},  # sysctl and ps print decimal commas where the user's locale has them
            )
        except FileNotFoundError as error:
            raise Unreadable(f"{command[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise Unreadable(f"{command[0]} did not answer within {COMMAND_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise Unreadable(f"{command[0]}: {error.strerror}") from error
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip().splitlines()
            raise Unreadable(f"{command[0]} failed with status {done.returncode}: {words[0] if words else 'no words'}")
        return done.stdout

    def read(self, path: str) -> str:
        try:
            return Path(path).read_text(errors="replace").strip()
        except FileNotFoundError as error:
            raise Unreadable(f"{path} does not exist") from error
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error

    def list(self, pattern: str) -> list[str]:
        root = Path("/")
        try:
            return sorted(str(path) for path in root.glob(pattern.lstrip("/")))
        except OSError as error:
            raise Unreadable(f"{pattern}: {error.strerror}") from error

    def notify_state(self, key: str) -> int:
        if sys.platform != "darwin":
            raise Unreadable("only macOS has notification keys")
        library = _system_library()
        if _is_virtual(library):
            raise NotThere(f"a virtual Mac (kern.hv_vmm_present is 1): {key} answers 0 whatever the hardware does")
        token, state = ctypes.c_int(), ctypes.c_uint64()
        if status := library.notify_register_check(key.encode(), ctypes.byref(token)):
            raise Unreadable(f"notify_register_check({key}) failed with status {status}")
        try:
            if status := library.notify_get_state(token, ctypes.byref(state)):
                raise Unreadable(f"notify_get_state({key}) failed with status {status}")
        finally:
            library.notify_cancel(token)
        return state.value

    def footprint_bytes(self, pid: int) -> int:
        return _rusage(pid, _FOOTPRINT_AT)

    def peak_footprint_bytes(self, pid: int) -> int:
        return _rusage(pid, _PEAK_FOOTPRINT_AT)


class Wrapped:
    """A system that passes every question on to another one; inherit, and answer some of them otherwise."""

    def __init__(self, system: System) -> None:
        self._system = system

    @property
    def platform(self) -> str:
        return self._system.platform

    @property
    def root_pid(self) -> int:
        return self._system.root_pid

    def run(self, *command: str) -> str:
        return self._system.run(*command)

    def read(self, path: str) -> str:
        return self._system.read(path)

    def list(self, pattern: str) -> list[str]:
        return self._system.list(pattern)

    def notify_state(self, key: str) -> int:
        return self._system.notify_state(key)

    def footprint_bytes(self, pid: int) -> int:
        return self._system.footprint_bytes(pid)

    def peak_footprint_bytes(self, pid: int) -> int:
        return self._system.peak_footprint_bytes(pid)


class OneReading(Wrapped):
    """A system that runs each command once, for several fields of one reading."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self._answers: dict[tuple[str, ...], str | Unreadable] = {}

    def run(self, *command: str) -> str:
        if command not in self._answers:
            try:
                self._answers[command] = super().run(*command)
            except Unreadable as error:
                self._answers[command] = error
        answer = self._answers[command]
        if isinstance(answer, Unreadable):
            raise Unreadable(str(answer))
        return answer


def reaped_cpu_s(pid: int) -> float:
    """CPU seconds of a process's children that have ended and been waited for, and of theirs.

    Raises:
        Unreadable: there is no such process, or it is another user's.
    """
    if pid == os.getpid():
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime
    if sys.platform == "darwin":
        ticks = _rusage(pid, _CHILD_USER_AT) + _rusage(pid, _CHILD_SYSTEM_AT)
        return ticks * _tick_s(_system_library())
    try:
        times = psutil.Process(pid).cpu_times()
    except PROCESS_FAULTS as error:
        raise Unreadable(f"process {pid} cannot be read: {error}") from error
    return float(times.children_user + times.children_system)


# struct rusage_info_v4: ri_phys_footprint lies after the 16 bytes of the uuid and seven 64-bit fields,
# ri_child_user_time and ri_child_system_time three and four further on, ri_lifetime_max_phys_footprint twenty-one.
_RUSAGE_V4 = 4
_RUSAGE_BYTES = 1024
_FOOTPRINT_AT = 72
_CHILD_USER_AT, _CHILD_SYSTEM_AT = 96, 104
_PEAK_FOOTPRINT_AT = 240
_NS_PER_S = 1e9


def _rusage(pid: int, at: int) -> int:
    """One 64-bit field of a process's resource usage."""
    if sys.platform != "darwin":
        raise Unreadable("only macOS has a physical footprint")
    buffer = ctypes.create_string_buffer(_RUSAGE_BYTES)
    if _system_library().proc_pid_rusage(pid, _RUSAGE_V4, buffer):
        raise Unreadable(f"proc_pid_rusage({pid}) failed: no such process, or another user's")
    return int.from_bytes(buffer.raw[at : at + 8], sys.byteorder)


def _tick_s(library: ctypes.CDLL) -> float:
    """Seconds of a tick of the clock that resource usage counts in: 125/3 ns on Apple silicon, 1 ns on Intel."""
    numerator_and_denominator = (ctypes.c_uint32 * 2)()
    if library.mach_timebase_info(numerator_and_denominator):
        raise Unreadable("mach_timebase_info failed")
    return numerator_and_denominator[0] / numerator_and_denominator[1] / _NS_PER_S


def _is_virtual(library: ctypes.CDLL) -> bool:
    """The value of `sysctl kern.hv_vmm_present`, read without starting a program."""
    value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    name, nothing = b"kern.hv_vmm_present", ctypes.c_size_t(0)
    return not library.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, nothing) and value.value == 1


def _system_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("/usr/lib/libSystem.B.dylib")
    except OSError as error:
        raise Unreadable(f"libSystem cannot be loaded: {error}") from error
