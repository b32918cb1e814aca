"""The errors that a command reports, and their exit codes.

    InterlaceError
    ├── InputError         2   the user's configuration, file or option; nothing ran
    ├── IncompleteError    3   the run is unfinished and can be resumed
    │   └── StoppedError       it was asked to stop
    └── RefusedError       4   the environment: memory, orphan, power, database version, a worker's crash
        ├── HeldError          another process measures on this machine, or runs this run
        └── NotOursError       a plan from elsewhere, or one that was changed since it was stored

A message states the problem, its place and the remedy, in one line.
"""

from workers.masking import mask


class InterlaceError(Exception):
    """Root of the errors that a command reports in one line. Its message holds no secret that this process knows."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(mask(message))


class InputError(InterlaceError):
    """Bad input; found before anything ran."""

    exit_code = 2


class IncompleteError(InterlaceError):
    """The run stopped early; the finished trials are stored."""

    exit_code = 3


class StoppedError(IncompleteError):
    """The run was asked to stop, and did so after a round."""

    def __init__(self, units_left: int) -> None:
        super().__init__(f"stopped as requested with {units_left} rounds and control runs left; resume it to continue")


class RefusedError(InterlaceError):
    """This machine, as it is now, cannot run it."""

    exit_code = 4


class HeldError(RefusedError):
    """Another living process holds the machine or the run."""


class NotOursError(RefusedError):
    """A plan that came from elsewhere, or that is not the one that was stored: it is never executed."""
