"""The system calls of a process on a stand-in Mac: its platform, and the calls into Darwin's libraries.

The counts of processes are this machine's own, so that what is read of our processes is true.
"""

import ctypes
import json
import os
import platform
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# They look at the platform once, when they are imported, and have to find the real one.
_LOOK_ONCE = "asyncio ctypes.util mimetypes multiprocessing psutil subprocess urllib.request uuid".split()
_RealLibrary = ctypes.CDLL
_TICKS_PER_S = 24_000_000
_SYSTEM = "/usr/lib/libSystem.B.dylib"
_GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"


def install() -> None:
    """Make this process one of the Mac whose folder STANDIN_MAC names."""
    if sys.orig_argv[1:2] != ["-c"]:  # such a child asks one thing
        for name in _LOOK_ONCE:
            import_module(name)
        import_module("sysconfig").get_config_vars()
    facts = json.loads((Path(os.environ["STANDIN_MAC"]) / "facts.json").read_text(encoding="utf-8"))
    libraries = {_SYSTEM: _System(facts), _GRAPHICS: _Graphics(facts)}

    class Library(_RealLibrary):
        def __new__(cls, name: Any = None, *_arguments: Any, **_options: Any) -> Any:
            return libraries[name] if name in libraries else super().__new__(cls)

    ctypes.CDLL = Library  # type: ignore[misc]
    platform.node = lambda: str(facts["hostname"])
    platform.machine = lambda: str(facts["machine"])
    sys.platform = "darwin"


def _put(reference: Any, kind: Any, value: int) -> None:
    ctypes.cast(reference, ctypes.POINTER(kind))[0] = value


class _System:
    """libSystem."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def notify_register_check(self, _key: bytes, token: Any) -> int:
        _put(token, ctypes.c_int, 1)
        return 0

    def notify_get_state(self, _token: Any, state: Any) -> int:
        _put(state, ctypes.c_uint64, self._facts["thermal_level"])
        return 0

    def notify_cancel(self, _token: Any) -> int:
        return 0

    def sysctlbyname(self, _name: bytes, value: Any, *_rest: Any) -> int:
        _put(value, ctypes.c_int, 0)  # not a virtual machine
        return 0

    def mach_timebase_info(self, info: Any) -> int:
        info[0], info[1] = 125, 3
        return 0

    def proc_pid_rusage(self, pid: int, _flavour: int, buffer: Any) -> int:
        import psutil

        try:
            process = psutil.Process(pid)
            size, times = process.memory_info().rss, process.cpu_times()
        except psutil.Error:
            return -1
        raw = bytearray(len(buffer))
        for at, number in ((64, size), (72, size), (240, size)):
            raw[at : at + 8] = int(number).to_bytes(8, sys.byteorder)
        for at, seconds in ((96, times.children_user), (104, times.children_system)):
            raw[at : at + 8] = int(seconds * _TICKS_PER_S).to_bytes(8, sys.byteorder)
        buffer.raw = bytes(raw)
        return 0

    def proc_listpids(self, _kind: int, parent: int, found: Any, _size: int) -> int:
        import psutil

        try:
            children = [child.pid for child in psutil.Process(parent).children()]
        except psutil.Error:
            return 0
        found[: len(children)] = children
        return len(children) * ctypes.sizeof(ctypes.c_int)


class _Graphics:
    """CoreGraphics."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def CGMainDisplayID(self) -> int:
        return int(self._facts["display"] is not None)

    def CGDisplayIsAsleep(self, _display: int) -> int:
        return int(self._facts["display"] == "asleep")
