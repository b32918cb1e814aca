"""Keeps the machine awake while a run runs, by the system's own tools; they end with the run, however it ends.

`caffeinate` never gets `-d`: a display that is held on is tied to watchdog panics. Its `-s` works on mains power only.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from workers.machine.system import tool_path
from workers.machine.telemetry import Reading

START_S = 0.3  # within which a tool that cannot do its work gives up
STOP_GRACE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Awake:
    """The tool that keeps the machine awake, or the reason why none does."""

    tool: str | None
    reason: str | None
    holder: subprocess.Popen[bytes] | None = None  # None: nothing holds it

    def reading(self) -> Reading:
        """Return the present state: the tool may have been ended."""
        if self.holder is not None and self.holder.poll() is not None:
            reason = f"{self.tool} has ended before the run: status {self.holder.returncode}"
            return Reading(field="kept_awake", source="no-sleep assertion", reason=reason)
        return Reading(field="kept_awake", value_text=self.tool, source="no-sleep assertion", reason=self.reason)


def command(pid: int, platform: str = sys.platform) -> tuple[str, ...] | None:
    """The command that holds the assertion until the process ends; None: no tool is known here."""
    if platform == "darwin":
        return ("caffeinate", "-i", "-m", "-s", "-w", str(pid))
    if platform == "linux":
        why = "--why=a measurement is running"
        inhibit = ("systemd-inhibit", "--what=sleep:idle", "--who=interlace", why, "--mode=block")
        return (*inhibit, "tail", f"--pid={pid}", "-f", "/dev/null")
    return None


@contextmanager
def keep_awake(pid: int, *, platform: str = sys.platform) -> Iterator[Awake]:
    """Keep the machine awake while this process runs. Where that is not possible, the reason is stored and the run
    goes on."""
    chosen = command(pid, platform)
    if chosen is None:
        yield Awake(tool=None, reason=f"no tool is known on {platform}")
        return
    try:
        holder = subprocess.Popen(
            (tool_path(chosen[0]), *chosen[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        yield Awake(tool=None, reason=f"{chosen[0]} cannot be started: {error.strerror}")
        return
    try:
        yield _state(holder, chosen[0])
    finally:
        _end(holder)


def _state(holder: subprocess.Popen[bytes], tool: str) -> Awake:
    try:
        holder.wait(START_S)
    except subprocess.TimeoutExpired:
        return Awake(tool=tool, reason=None, holder=holder)
    words = (holder.stderr.read() if holder.stderr else b"").decode(errors="replace").strip().splitlines()
    return Awake(tool=None, reason=f"{tool} gave up: {words[0] if words else f'status {holder.returncode}'}")


def _end(holder: subprocess.Popen[bytes]) -> None:
    holder.terminate()
    try:
        holder.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
    if holder.stderr is not None:
        holder.stderr.close()
