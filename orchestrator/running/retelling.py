"""A server's answers are known by their text. Which to ask for once more with the tokens, and what comes of it. Pure.

Only answers whose text leaves the control's are asked for again, and only an answer that comes back with the very text
that was measured counts: then its tokens are those of the measured one.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.records import Answer
from orchestrator.plan import Plan
from orchestrator.running.probing import ArmWidth, Place, Question, compared, first_answers, messages_before
from workers.protocol import Retold

COMPARED_PLACES = 63  # at most, before the place where two answers part


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """One answer to ask for again."""

    arm: str
    prompt_id: str
    turn: int
    messages: tuple[dict[str, str], ...]  # the conversation before it
    prompt_sha256: str
    max_tokens: int
    text: str

    @property
    def place(self) -> Place:
        return self.arm, self.prompt_id, self.turn


def tellings(plan: Plan, answers: Sequence[Answer]) -> list[Telling]:
    """Of each pair of texts that differ, those whose tokens nobody told; the shortest first, `probe_prompts` an arm."""
    found: dict[Place, tuple[int, Telling]] = {}
    asked: Counter[str] = Counter()
    differing = [
        (control, other)
        for control, given in compared(plan, answers)
        for other in [next((each for each in given if _texts_differ(control, each)), None)]
        if other is not None
    ]
    for control, other in sorted(differing, key=lambda pair: pair[1].completion_tokens or 0):
        if asked[other.arm] >= plan.design.probe_prompts:
            continue
        wanted = [each for each in (control, other) if not each.token_ids]
        asked[other.arm] += bool(wanted)
        for each in wanted:
            telling = _telling(plan, answers, each)
            found.setdefault(telling.place, (each.completion_tokens or 0, telling))
    return [telling for _, telling in sorted(found.values(), key=lambda pair: pair[0])]


def _texts_differ(control: Answer, other: Answer) -> bool:
    """Of two answers to the same prompt, of which at least one tells no tokens."""
    return (
        control.prompt_sha256 is not None
        and control.prompt_sha256 == other.prompt_sha256
        and not (control.token_ids and other.token_ids)
        and None not in (control.text, other.text)
        and control.text != other.text
    )


def _telling(plan: Plan, answers: Sequence[Answer], answer: Answer) -> Telling:
    before = first_answers(answers, plan.control)
    earlier = [before[answer.prompt_id, turn] for turn in range(answer.turn) if (answer.prompt_id, turn) in before]
    return Telling(
        arm=answer.arm,
        prompt_id=answer.prompt_id,
        turn=answer.turn,
        messages=tuple(messages_before(plan, answer, earlier)),
        prompt_sha256=answer.prompt_sha256 or "",
        max_tokens=next(prompt.max_tokens for prompt in plan.prompts if prompt.id == answer.prompt_id),
        text=answer.text or "",
    )


def with_tokens(answers: Iterable[Answer], told: Mapping[Place, Retold]) -> list[Answer]:
    """The answers, those that were told again with their tokens."""

    def known(answer: Answer) -> Answer:
        again = told.get((answer.arm, *answer.key))
        if again is None or answer.token_ids or answer.text != again.text:
            return answer
        return replace(answer, token_ids_json=json.dumps(again.token_ids))

    return [known(answer) for answer in answers]


def scorer(plan: Plan, answers: Iterable[Answer], widths: Iterable[ArmWidth]) -> str:
    """Who is asked how sure the control's checkpoint was: the control, or where that is a server, the plainest arm
    that runs the same checkpoint in process.
    """
    telling = {answer.arm for answer in answers if answer.token_ids}
    if plan.control in telling:
        return plan.control
    checkpoints = {arm.name: arm.checkpoint["name"] for arm in plan.arms}
    fitting = [each for each in widths if each.arm in telling and checkpoints[each.arm] == checkpoints[plan.control]]
    return min(fitting, key=lambda each: each.drafts).arm if fitting else plan.control


def apart(plan: Plan, question: Question, told: Mapping[Place, Retold]) -> float | None:
    """How far two servers' own log-probabilities of the same tokens lie apart, in nats, at most.

    Returns:
        None: one of the two told none, they run other checkpoints, or no token comes before the place.
    """
    checkpoints = {arm.name: arm.checkpoint["name"] for arm in plan.arms}
    pair = [told.get((arm, question.prompt_id, question.turn)) for arm in (plan.control, question.arm)]
    if checkpoints[plan.control] != checkpoints[question.arm] or pair[0] is None or pair[1] is None:
        return None
    until = question.token_index
    before = slice(max(0, until - COMPARED_PLACES), until)
    one, other = (each.logprobs[before] for each in (pair[0], pair[1]))
    return max((abs(mine - theirs) for mine, theirs in zip(one, other, strict=True)), default=None)
