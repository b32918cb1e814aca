"""A PID namespace of its own for a process of a test, where the system lets us have one."""

import shutil
import subprocess
from collections.abc import Sequence

_COMMAND = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def in_other_pids() -> Sequence[str]:
    """The words before a command; none where there is no such namespace."""
    if not shutil.which("unshare") or subprocess.run([*_COMMAND, "true"], check=False, capture_output=True).returncode:
        return ()
    return _COMMAND
