"""Locks on files, which the kernel releases however their holder ends, and which every PID namespace sees."""

import fcntl
import os
import time
from pathlib import Path

from workers.files.private import open_private

_LOOKS, _LOOK_S = 10, 0.02


def take_lock(descriptor: int) -> None:
    """Lock what is open until it is closed. Another process's look takes the lock for an instant, and is waited for.

    Raises:
        BlockingIOError: another process holds it.
        OSError: nothing can be locked there.
    """
    for _ in range(_LOOKS):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file. False where nothing can be locked or opened."""
    try:
        descriptor = open_private(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
