"""Errors in and of a worker, in a few kinds.

    WorkerError
    ├── EngineError        raised in the worker: an engine states what it cannot do, and the remedy
    ├── ProbeUnsupported   raised in the worker: an engine cannot be probed so; no fault
    └── WorkerFault        raised in the parent: what the worker did instead of answering

Standard library only. The kinds are stored with a trial, so a name never changes its meaning. A message holds no secret
that this process knows.
"""

import errno
import signal
from enum import StrEnum

from workers.masking import mask
from workers.protocol import Generation


class FaultKind(StrEnum):
    """The reasons why a worker's answer is missing."""

    load_failed = "load_failed"
    package_missing = "package_missing"  # the engine's package is not installed in the worker's environment
    checkpoint_missing = "checkpoint_missing"
    checkpoint_corrupt = "checkpoint_corrupt"
    tokenizer_mismatch = "tokenizer_mismatch"  # draft and target read text differently
    draft_mismatch = "draft_mismatch"  # the installed package does not know the draft's parameters, or lacks some
    cache_not_trimmable = "cache_not_trimmable"  # rejected tokens cannot be taken back
    unsupported_setting = "unsupported_setting"
    generation_failed = "generation_failed"
    probe_failed = "probe_failed"  # after the last round; no trial is lost by it
    zero_tokens = "zero_tokens"  # answered without one token
    impossible_count = "impossible_count"  # stated a count that contradicts the request, the text or another count
    out_of_memory = "out_of_memory"
    gpu_timeout = "gpu_timeout"  # one command buffer ran too long
    gpu_interactivity = "gpu_interactivity"  # stopped because it held up the screen
    gpu_submissions_ignored = "gpu_submissions_ignored"  # refused after this process's earlier faults
    crashed = "crashed"  # ended by a signal, or with an exit status that is not 0
    exited_without_record = "exited_without_record"  # status 0, or a closed channel, with the answer missing
    hung_load = "hung_load"
    hung_first_token = "hung_first_token"
    hung_inter_token = "hung_inter_token"
    teardown_hang = "teardown_hang"  # did not end when it was asked to make room for the next arm
    too_long = "too_long"  # the whole request took longer than its deadline
    disk_full = "disk_full"  # for the worker's log, the journal, or what an engine writes
    log_flood = "log_flood"  # printed without end
    garbage = "garbage"  # bytes on the channel that are not a message, or a message that is not due


class WorkerError(Exception):
    """Root of this package's errors."""


class EngineError(WorkerError):
    """An engine cannot do what was asked.

    Args:
        kind: what kind of fault it is.
        message: what and where, in one line.
        remedy: what the user can do, in one line; empty where nobody knows one.
    """

    def __init__(self, kind: FaultKind, message: str, *, remedy: str = "") -> None:
        super().__init__(mask(f"{message}; {remedy}" if remedy else message))
        self.kind = kind
        self.remedy = remedy


class ProbeUnsupported(WorkerError):
    """An engine cannot be probed in the way that was asked: why, in one line."""


class WorkerFault(WorkerError):
    """A worker did not answer as it should.

    Attributes:
        kind: what kind of fault it is.
        log_tail: the last lines of the worker's log.
        detail: the worker's traceback, where it sent one.
        generations: the turns that were answered before the fault.
        alive: the process goes on and takes further requests; else it and its children are ended.
    """

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        log_tail: str = "",
        detail: str = "",
        generations: tuple[Generation, ...] = (),
        alive: bool = False,
    ) -> None:
        super().__init__(mask(message))
        self.kind = kind
        self.log_tail = mask(log_tail)
        self.detail = mask(detail)
        self.generations = generations
        self.alive = alive


# Metal's causes by the name that the system gives them (IOGPU's callback errors), and MLX's own words for a failed
# allocation. The first match counts.
_SIGNS: tuple[tuple[str, FaultKind], ...] = (
    ("kIOGPUCommandBufferCallbackErrorOutOfMemory", FaultKind.out_of_memory),
    ("kIOGPUCommandBufferCallbackErrorTimeout", FaultKind.gpu_timeout),
    ("kIOGPUCommandBufferCallbackErrorImpactingInteractivity", FaultKind.gpu_interactivity),
    ("kIOGPUCommandBufferCallbackErrorSubmissionsIgnored", FaultKind.gpu_submissions_ignored),
    ("Insufficient Memory", FaultKind.out_of_memory),
    ("[metal::malloc]", FaultKind.out_of_memory),
    ("[malloc] Unable to allocate", FaultKind.out_of_memory),
    ("Attempting to allocate", FaultKind.out_of_memory),
    ("std::bad_alloc", FaultKind.out_of_memory),
    ("No space left on device", FaultKind.disk_full),
)


def classify_text(text: str) -> FaultKind | None:
    """Return the kind that the words of an error or a log name, or None."""
    return next((kind for sign, kind in _SIGNS if sign in text), None)


def classify(error: BaseException, *, default: FaultKind) -> FaultKind:
    """The kind of an error that an engine let through."""
    if isinstance(error, EngineError):
        return error.kind
    if isinstance(error, MemoryError):
        return FaultKind.out_of_memory
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return FaultKind.disk_full
    return classify_text(str(error)) or default


def describe_exit(returncode: int) -> str:
    """A process's end in words, as `Popen.returncode` gives it: negative for a signal."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = "unknown"
    hint = "; the system does this when memory runs out" if returncode == -signal.SIGKILL else ""
    return f"signal {-returncode} ({name}){hint}"
