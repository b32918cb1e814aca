"""Before the first round: does each arm run, and whose fault is it if it does not?

Each arm answers a few tokens: it has to run, show its evidence and begin each conversation afresh. A failed preflight
ends the command by one table for every kind of fault:

    the plan's       exit code 2   only another plan helps: a setting, a checkpoint or a draft has to be changed
    the machine's    exit code 4   the same plan may run later, or once a package, a server or this machine is mended

The same fault has the same code whether it is met before the worker starts, while it loads or at its first answer, in
process or at a server. A test holds the table against the kinds that there are.
"""

from collections.abc import Callable

from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Arm, Plan
from orchestrator.running.crew import Crew, Member
from orchestrator.running.trial import from_cache, judge
from workers.errors import FaultKind, WorkerFault
from workers.protocol import Generate

PREFLIGHT_TOKENS = 8


def try_arm(plan: Plan, arm: Arm, crew: Crew, *, on_load: Callable[[Member], None]) -> str | None:
    """What is wrong with the arm, in one line; None: it runs and shows its evidence.

    Args:
        on_load: called with the arm's worker when it has to be loaded for this.
    """
    first = plan.prompts[0]
    request = Generate(
        request_id=f"preflight/{arm.name}",
        turns=[[dict(message) for message in first.turns[0]]],
        max_tokens=min(PREFLIGHT_TOKENS, first.max_tokens),
        seed=plan.design.seed,
        prompt_class=first.prompt_class,
    )
    share_max = plan.design.cached_share_max
    try:
        member = crew.member(arm, on_load=on_load)
        generations = list(member.generate(request))
        # A server may keep the prompt for the next round: asked again, it tells so now.
        again = share_max is not None and any(generation.stamps_of == "chunk" for generation in generations)
        answers = [*generations, *(member.generate(request) if again else ())]
    except WorkerFault as fault:
        crew.discard(arm)
        return f"{fault.kind}: {fault}"
    if crew.swap and (words := crew.discard(arm)) is not None:  # it has to make room after every trial
        return f"{FaultKind.teardown_hang}: {words}"
    unasked = from_cache([(first, answer) for answer in answers], share_max=share_max)
    if plan.design.evidence == "record":
        return unasked
    return next((why for generation in generations if (why := judge(generation.evidence).fault)), unasked)


OF_THE_PLAN = frozenset(
    {
        FaultKind.cache_not_trimmable,
        FaultKind.checkpoint_corrupt,
        FaultKind.draft_mismatch,
        FaultKind.tokenizer_mismatch,
        FaultKind.unsupported_setting,
        "cached_prompt",  # `orchestrator.running.trial`
        # Of the evidence, `orchestrator.running.trial`: what the plan asks for is not what runs.
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
