"""macmon as a stream: one process that prints a line each interval, so that a sample starts no program.

Without root a Mac reports its GPU's clock only through such a tool, and starting it anew for every sample would cost a
process per second. The stream belongs to the sampler and ends with it; its processor time is the sampler's.
"""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable

import psutil

from workers.machine.optional_tools import MACMON
from workers.machine.processes import PROCESS_FAULTS
from workers.machine.system import System, Unreadable, Wrapped, tool_path

STALE_INTERVALS = 3.0  # a line older than so many intervals does not describe the present
STOP_GRACE_S = 1.0


class MacmonStream:
    """The newest line of a `macmon` that runs on.

    Args:
        interval_s: between two lines; each averages over it.

    Raises:
        Unreadable: it cannot be started.
    """

    def __init__(self, *, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stale_s = STALE_INTERVALS * interval_s
        self._clock = clock
        self._line, self._at_s = "", clock()
        command = (tool_path("macmon"), "pipe", "-s", "0", "-i", str(max(round(interval_s * 1000), 100)))
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise Unreadable("macmon is not installed") from error
        self._thread = threading.Thread(target=self._read, name="macmon", daemon=True)
        self._thread.start()

    def newest(self) -> str:
        """The newest line.

        Raises:
            Unreadable: none has come yet, or for some intervals.
        """
        if self._clock() - self._at_s > self._stale_s:
            raise Unreadable("macmon no longer prints anything")
        if not self._line:
            raise Unreadable("macmon has printed nothing yet")
        return self._line

    def cpu_s(self) -> float:
        """The processor seconds that it has spent; 0 once it has ended."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except PROCESS_FAULTS:
            return 0.0
        return times.user + times.system

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_GRACE_S)
        self._process.kill()  # does nothing if it has ended
        self._process.wait()
        self._thread.join(STOP_GRACE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._line, self._at_s = line, self._clock()


class Streaming(Wrapped):
    """A system whose `macmon` is the stream: its fields then cost no more than a look."""

    def __init__(self, system: System, stream: MacmonStream) -> None:
        super().__init__(system)
        self._stream = stream

    def run(self, *command: str) -> str:
        return self._stream.newest() if command == MACMON else super().run(*command)
