"""Does an arm run, and does it show its evidence? A few tokens tell, before a night is spent on it."""

from collections.abc import Callable

from orchestrator.plan import Arm, Plan
from orchestrator.running.crew import Crew, Member
from orchestrator.running.evidence import judge
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
    try:
        generations = crew.member(arm, on_load=on_load).generate(request)
    except WorkerFault as fault:
        crew.discard(arm)
        return f"{fault.kind}: {fault}"
    if crew.swap and (words := crew.discard(arm)) is not None:  # it has to make room after every trial
        return f"{FaultKind.teardown_hang}: {words}"
    if plan.design.evidence == "record":
        return None
    return next((why for generation in generations if (why := judge(generation.evidence).fault)), None)
