"""Machines that are recordings: what their commands printed and their files held."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from workers.machine.system import Unreadable

NEW = (
    '{"temp": {"cpu_temp_avg": 71.5, "gpu_temp_avg": 68.25}, "gpu_freq_mhz": 1380, "gpu_active_ratio": 0.97,'
    ' "all_power": 31.5, "sys_power": 44.5, "fans": [{"name": "left", "rpm": 2300}]}\n'
)

FIXTURES = Path(__file__).parent.parent / "fixtures" / "macos"


def recorded(name: str) -> str:
    """The text of a recording."""
    return (FIXTURES / name).read_text()


@dataclass(slots=True, kw_only=True)
class Recorded:
    """A `workers.machine.system.System` that answers from recordings; what is not recorded is unreadable."""

    platform: str
    commands: Mapping[str, str] = field(default_factory=dict)  # command line: output
    files: Mapping[str, str] = field(default_factory=dict)
    notifications: Mapping[str, int] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    root_pid: int = field(default_factory=os.getpid)

    def run(self, *command: str) -> str:
        line = " ".join(command)
        self.ran.append(line)
        if line not in self.commands:
            raise Unreadable(f"{command[0]} is not installed")
        return self.commands[line]

    def read(self, path: str) -> str:
        if path not in self.files:
            raise Unreadable(f"{path} does not exist")
        return self.files[path].strip()

    def list(self, pattern: str) -> list[str]:
        """Files and their folders, as `Path.glob` finds both; a star stays within a folder's name."""
        known = {str(p) for path in self.files for p in (Path(path), *Path(path).parents)}
        depth = pattern.count("/")
        return sorted(path for path in known if path.count("/") == depth and fnmatch(path, pattern))

    def notify_state(self, key: str) -> int:
        if key not in self.notifications:
            raise Unreadable(f"notify_register_check({key}) failed with status 9")
        return self.notifications[key]

    def peak_footprint_bytes(self, pid: int) -> int:
        return self.footprint_bytes(pid)

    def footprint_bytes(self, pid: int) -> int:
        raise Unreadable(f"proc_pid_rusage({pid}) failed: no such process, or another user's")
