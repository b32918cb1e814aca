"""Does an arm run, show its evidence, begin each conversation afresh? A few tokens tell, before a night is spent."""

from collections.abc import Callable

from orchestrator.plan import Arm, Plan
from orchestrator.running.cached import from_cache
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
