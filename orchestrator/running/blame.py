"""Whose fault a failed preflight is, and so how the command ends: one table for every kind of fault. Pure.

    the plan's       exit code 2   only another plan helps: a setting, a checkpoint or a draft has to be changed
    the machine's    exit code 4   the same plan may run later, or once a package, a server or this machine is mended

The same fault has the same code whether it is met before the worker starts, while it loads or at its first answer, in
process or at a server. A test holds the table against the kinds that there are.
"""

from orchestrator.errors import InputError, RefusedError
from workers.errors import FaultKind

OF_THE_PLAN = frozenset(
    {
        FaultKind.cache_not_trimmable,
        FaultKind.checkpoint_corrupt,
        FaultKind.draft_mismatch,
        FaultKind.tokenizer_mismatch,
        FaultKind.unsupported_setting,
        "cached_prompt",  # `orchestrator.running.cached`
        # Of the evidence, `orchestrator.running.evidence`: what the plan asks for is not what runs.
        "engagement_unknown",
        "evidence_broken",
        "not_engaged",
        "unrequested_mechanism",
    }
)
OF_THE_MACHINE = frozenset(
    {
        FaultKind.checkpoint_missing,  # by now: what is no file of this machine could not be fetched
        FaultKind.crashed,
        FaultKind.disk_full,
        FaultKind.exited_without_record,
        FaultKind.garbage,
        FaultKind.generation_failed,  # a server that does not answer, among others
        FaultKind.gpu_interactivity,
        FaultKind.gpu_submissions_ignored,
        FaultKind.gpu_timeout,
        FaultKind.hung_first_token,
        FaultKind.hung_inter_token,
        FaultKind.hung_load,
        FaultKind.impossible_count,  # a server's, as all that it says
        FaultKind.load_failed,  # a package or a server that does not start, for a reason that nobody knows
        FaultKind.log_flood,
        FaultKind.out_of_memory,
        FaultKind.package_missing,
        FaultKind.probe_failed,
        FaultKind.teardown_hang,
        FaultKind.too_long,
        FaultKind.zero_tokens,
    }
)


def refusal(kind: str, message: str) -> InputError | RefusedError:
    """The error that a fault of this kind ends a command with; a kind that nobody knows is the machine's."""
    return InputError(message) if kind in OF_THE_PLAN else RefusedError(message)
