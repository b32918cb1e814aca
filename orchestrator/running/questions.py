"""The questions to the models after the last round, and the meaning of their answers. Pure.

There are two questions. At the first token where an arm's greedy answer differs from the control's: is it a near-tie,
which passes of another width may decide differently, or a real difference? And how long does a pass of each width take?

A server's answers are known by their text. Only answers whose text diverges from the control's are asked for again,
with the tokens, and only a repeated answer with exactly the measured text counts: then its tokens are those of the
measured one.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.findings.losslessness import first_difference
from orchestrator.findings.records import Answer
from orchestrator.plan import Plan
from workers.protocol import Regenerated, Scored

MOST_LIKELY = 5  # tokens reported per divergence
MOST_WIDTHS = 4  # for each divergence: every width is another pass over the answer
SUBSTITUTE_WIDTHS = (2, 8)  # if all arms decode one token per pass, these stand for rounding
PASS_REPEATS = 9
BUDGET_SHARE, LEAST_BUDGET_S, MOST_BUDGET_S = 0.1, 20.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWidth:
    """The widths of an arm's passes, as its engine reported them when it was loaded."""

    arm: str
    verify_width: int | None  # None: plain decoding, or it never loaded
    drafts: bool


Place = tuple[str, str, int]  # arm, prompt id, turn


def budget_s(plan: Plan, *, trials_s: float) -> float:
    """Return the seconds that all probes of a run may take."""
    if plan.design.probe_budget_s is not None:
        return plan.design.probe_budget_s
    return min(MOST_BUDGET_S, max(LEAST_BUDGET_S, BUDGET_SHARE * trials_s))


# ---- divergences ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One place where an arm's answer diverges from the control's."""

    arm: str
    prompt_id: str
    turn: int
    token_index: int
    control_token: int | None  # None: the control's answer ends there
    arm_token: int | None
    messages: tuple[dict[str, str], ...]  # the conversation before the answer
    prompt_sha256: str
    token_ids: tuple[int, ...]  # common to both answers before the place
    widths: tuple[int, ...]
    passes_s: float  # approximate duration of a probe, used for the order only
    reason_against: str | None  # why it is not asked; None: it is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a probe at one place; see `db.models.Divergence`."""

    verdict: str  # near_tie | real | unknown
    reason: str
    gap: float | None = None
    rounding: float | None = None
    control_text: str | None = None
    arm_text: str | None = None
    context_text: str | None = None
    top: tuple[tuple[int, str, float], ...] | None = None


def questions(plan: Plan, answers: Iterable[Answer], widths: Iterable[ArmWidth]) -> list[Question]:
    """Return each first divergence of a greedy arm from the control, the cheapest first; `probe_prompts` asked per arm.

    Only arms with the control's sampler are compared, on the same prompt: after a first turn that differs, the second
    turn is a different prompt.

    Args:
        answers: in time order. The control's first answer to a turn counts, and an arm's first that differs from it.
    """
    answers = list(answers)
    first = first_answers(answers, plan.control)
    of_arm = {each.arm: each.verify_width or 1 for each in widths}
    found = []
    for control, given in compared(plan, answers):
        earlier = ((control.prompt_id, turn) for turn in range(control.turn))
        before = [first[key] for key in earlier if key in first]
        asked = _widths(of_arm.get(given[0].arm, 1), of_arm.values())
        each = (_question(plan, before, control, other, asked) for other in given)
        found += [question for question in each if question is not None][:1]
    return _at_most(sorted(found, key=lambda each: each.passes_s), plan.design.probe_prompts)


def compared(plan: Plan, answers: Iterable[Answer]) -> list[tuple[Answer, list[Answer]]]:
    """Pair the control's first answer to each turn with one arm's answers to it. Only arms with the control's sampler
    are paired, and none if that sampler is random.
    """
    sampling = {arm.name: arm.sampling for arm in plan.arms}
    if sampling[plan.control].get("temperature", 0.0) > 0:
        return []
    by_place: dict[Place, list[Answer]] = {}
    for answer in answers:
        by_place.setdefault((answer.arm, *answer.key), []).append(answer)
    return [
        (by_place[plan.control, prompt_id, turn][0], given)
        for (name, prompt_id, turn), given in by_place.items()
        if name != plan.control
        and (plan.control, prompt_id, turn) in by_place
        and sampling[name] == sampling[plan.control]
    ]


def first_answers(answers: Iterable[Answer], arm: str) -> dict[tuple[str, int], Answer]:
    """Return an arm's first answer to each turn, by prompt id and turn."""
    found: dict[tuple[str, int], Answer] = {}
    for answer in answers:
        if answer.arm == arm:
            found.setdefault(answer.key, answer)
    return found


def _widths(own: int, of_run: Iterable[int]) -> tuple[int, ...]:
    """Return the widths to ask for: those of the run's arms, the arm's own among them."""
    wide = sorted({width for width in of_run if width > 1})
    if not wide:
        return SUBSTITUTE_WIDTHS
    if len(wide) <= MOST_WIDTHS:
        return tuple(wide)
    kept = ({own} if own > 1 else set()) | {wide[0], wide[-1]}
    others = [width for width in wide if width not in kept]
    return tuple(sorted(kept | set(others[: MOST_WIDTHS - len(kept)])))


def _question(
    plan: Plan, before: Sequence[Answer], control: Answer, other: Answer, widths: tuple[int, ...]
) -> Question | None:
    """Return the question, or None for equal tokens, another prompt, or a server that returned no token ids."""
    if control.prompt_sha256 is None or control.prompt_sha256 != other.prompt_sha256:
        return None
    if not (control.token_ids and other.token_ids):
        return None
    place = first_difference(control.token_ids, other.token_ids)
    if place is None:
        return None
    control_token, arm_token = (
        each[place] if place < len(each) else None for each in (control.token_ids, other.token_ids)
    )
    ends = control_token is None or arm_token is None
    plain_s = (control.stamps_us[min(place, len(control.stamps_us) - 1)] / 1e6) if control.stamps_us else 0.0
    return Question(
        arm=other.arm,
        prompt_id=control.prompt_id,
        turn=control.turn,
        token_index=place,
        control_token=control_token,
        arm_token=arm_token,
        messages=tuple(messages_before(plan, control, before)),
        prompt_sha256=control.prompt_sha256,
        token_ids=control.token_ids[:place],
        widths=widths,
        passes_s=plain_s * (1 + len(widths)),
        reason_against="one answer ends where the other continues: no two tokens to compare" if ends else None,
    )


def messages_before(plan: Plan, answer: Answer, before: Sequence[Answer]) -> list[dict[str, str]]:
    """Return the conversation as the worker had it before this answer, given the answers to earlier turns."""
    turns = next(prompt.turns for prompt in plan.prompts if prompt.id == answer.prompt_id)
    messages = [dict(message) for message in turns[0]]
    for earlier, added in zip(before, turns[1 : answer.turn + 1], strict=True):
        messages.append({"role": "assistant", "content": earlier.text or ""})
        messages += [dict(message) for message in added]
    return messages


def _at_most(found: Sequence[Question], most: int) -> list[Question]:
    asked: Counter[str] = Counter()
    kept = []
    for question in found:
        if question.reason_against is None and asked[question.arm] >= most:
            question = replace(question, reason_against=f"design.probe_prompts: {most} answers of each arm are probed")
        asked[question.arm] += question.reason_against is None
        kept.append(question)
    return kept


def judge(scored: Scored, *, servers_apart: float | None = None) -> Finding:
    """Decide between near-tie and real difference.

    A choice changes if the log-probabilities of two tokens change order. Passes of other widths were seen to move
    each by up to `rounding`, so their difference by up to twice that: a lead of no more is a near-tie.

    Args:
        servers_apart: used if passes of other widths were not available: the difference of two servers' own
            log-probabilities of the same tokens, in nats. None: unknown too.
    """
    control, other = scored.rivals
    gap = control.logprob - other.logprob
    rounding = max((change.largest for change in scored.changes), default=servers_apart)
    details: dict[str, Any] = {
        "gap": gap,
        "rounding": rounding,
        "control_text": control.text,
        "arm_text": other.text,
        "context_text": scored.context_text,
        "top": tuple((each.token_id, each.text, each.logprob) for each in scored.top),
    }
    lead = f"the control's token leads by {gap:.3g} nats"
    if rounding is None:
        return Finding(verdict="unknown", reason=f"{lead}; the effect of rounding could not be measured", **details)
    widths = ", ".join(str(change.width) for change in scored.changes)
    moved = f"passes of {widths} tokens move log-probabilities here by up to {rounding:.2g}"
    if not scored.changes:
        moved = f"the two servers' own log-probabilities of the same tokens lie up to {rounding:.2g} apart"
    missed = scored.top[0].logprob - control.logprob
    if missed > 2 * rounding:
        reason = f"the control's own token is not the likeliest when computed again, by {missed:.3g} nats; {moved}"
        return Finding(verdict="unknown", reason=reason, **details)
    if abs(gap) <= 2 * rounding:
        return Finding(verdict="near_tie", reason=f"{lead}, and {moved}: twice that may change the choice", **details)
    return Finding(verdict="real", reason=f"{lead}, and {moved}: twice that is less than the lead", **details)


# ---- passes ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One checkpoint's or draft's passes and the arms that may run them: the first one that supports it is asked."""

    what: str  # in words
    arms: tuple[str, ...]
    widths: tuple[int, ...]  # of the target; empty: the draft alone
    draft: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context that timed passes run on."""

    messages: tuple[dict[str, str], ...]
    token_ids: tuple[int, ...]
    context_tokens: int


def timings(plan: Plan, widths: Sequence[ArmWidth], answers: Iterable[Answer] = ()) -> list[Timing]:
    """Return the passes to time. For each checkpoint that verifies proposals: passes of one token, of its arms' widths,
    and of the widest pass that they ran beyond them (mlx-dspark copies long matches whole), on its plainest arm.
    For each draft: its pass, on the first arm that has it.
    """
    of_arm = {each.arm: each for each in widths}
    widest: dict[str, int] = {}
    for answer in answers:
        ran = max((drafted + 1 for drafted, *_ in answer.steps or ()), default=1)
        widest[answer.arm] = max(widest.get(answer.arm, 1), ran)
    found = []
    for checkpoint in {arm.checkpoint["name"]: None for arm in plan.arms}:
        sharing = [arm for arm in plan.arms if arm.checkpoint["name"] == checkpoint and arm.name in of_arm]
        drafting_arms = [arm.name for arm in sharing if of_arm[arm.name].drafts]
        wide = {of_arm[name].verify_width or 1 for name in drafting_arms}
        wide |= {each for name in drafting_arms if (each := widest.get(name, 1)) > max(wide)}
        if not wide:
            continue
        by_plainness = sorted(sharing, key=lambda arm: of_arm[arm.name].drafts)  # stable sort: keeps the plan's order
        names = tuple(arm.name for arm in by_plainness)
        found.append(Timing(what=f"{checkpoint}", arms=names, widths=tuple(sorted(wide | {1})), draft=False))
    drafting: dict[tuple[str, str], list[str]] = {}
    for arm in plan.arms:
        if arm.draft is not None and arm.name in of_arm and of_arm[arm.name].drafts:
            drafting.setdefault((arm.engine["name"], arm.draft["name"]), []).append(arm.name)
    for (_, draft), arms in drafting.items():
        found.append(Timing(what=f"draft {draft}", arms=tuple(arms), widths=(), draft=True))
    return found


def context_of(plan: Plan, answers: Iterable[Answer], arm: str) -> Context | None:
    """Return the arm's first turn of median length with half of its answer, or None without an answer with tokens."""
    known = [
        (answer.prompt_tokens + len(answer.token_ids) // 2, answer)
        for answer in answers
        if answer.arm == arm and answer.turn == 0 and answer.token_ids and answer.prompt_tokens is not None
    ]
    if not known:
        return None
    middle = statistics.median_low([length for length, _ in known])
    answer = next(answer for length, answer in known if length == middle)
    return Context(
        messages=tuple(messages_before(plan, answer, ())), token_ids=answer.token_ids or (), context_tokens=middle
    )


COMPARED_PLACES = 63  # at most, before the place where two answers diverge


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
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


def repetitions(plan: Plan, answers: Sequence[Answer]) -> list[Repetition]:
    """Return the answers to ask for again: of pairs whose texts differ and of which one has no token ids.

    The shortest come first, `probe_prompts` per arm.
    """
    found: dict[Place, tuple[int, Repetition]] = {}
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
            repetition = _repetition(plan, answers, each)
            found.setdefault(repetition.place, (each.completion_tokens or 0, repetition))
    return [repetition for _, repetition in sorted(found.values(), key=lambda pair: pair[0])]


def _texts_differ(control: Answer, other: Answer) -> bool:
    """Return whether two answers to the same prompt differ in text, if at least one has no token ids."""
    return (
        control.prompt_sha256 is not None
        and control.prompt_sha256 == other.prompt_sha256
        and not (control.token_ids and other.token_ids)
        and None not in (control.text, other.text)
        and control.text != other.text
    )


def _repetition(plan: Plan, answers: Sequence[Answer], answer: Answer) -> Repetition:
    before = first_answers(answers, plan.control)
    earlier = [before[answer.prompt_id, turn] for turn in range(answer.turn) if (answer.prompt_id, turn) in before]
    return Repetition(
        arm=answer.arm,
        prompt_id=answer.prompt_id,
        turn=answer.turn,
        messages=tuple(messages_before(plan, answer, earlier)),
        prompt_sha256=answer.prompt_sha256 or "",
        max_tokens=next(prompt.max_tokens for prompt in plan.prompts if prompt.id == answer.prompt_id),
        text=answer.text or "",
    )


def with_tokens(answers: Iterable[Answer], repeated: Mapping[Place, Regenerated]) -> list[Answer]:
    """Return the answers; repeated ones get their token ids."""

    def known(answer: Answer) -> Answer:
        again = repeated.get((answer.arm, *answer.key))
        if again is None or answer.token_ids or answer.text != again.text:
            return answer
        return replace(answer, token_ids_json=json.dumps(again.token_ids))

    return [known(answer) for answer in answers]


def scorer(plan: Plan, answers: Iterable[Answer], widths: Iterable[ArmWidth]) -> str:
    """Return the arm that scores the control's tokens: the control, or if it is a server, the plainest arm that runs
    the same checkpoint in process.
    """
    with_ids = {answer.arm for answer in answers if answer.token_ids}
    if plan.control in with_ids:
        return plan.control
    checkpoints = {arm.name: arm.checkpoint["name"] for arm in plan.arms}
    fitting = [each for each in widths if each.arm in with_ids and checkpoints[each.arm] == checkpoints[plan.control]]
    return min(fitting, key=lambda each: each.drafts).arm if fitting else plan.control


def apart(plan: Plan, question: Question, repeated: Mapping[Place, Regenerated]) -> float | None:
    """Return the largest difference of two servers' own log-probabilities of the same tokens, in nats.

    Returns:
        None if one of the two returned none, if they run different checkpoints, or if no token precedes the place.
    """
    checkpoints = {arm.name: arm.checkpoint["name"] for arm in plan.arms}
    pair = [repeated.get((arm, question.prompt_id, question.turn)) for arm in (plan.control, question.arm)]
    if checkpoints[plan.control] != checkpoints[question.arm] or pair[0] is None or pair[1] is None:
        return None
    until = question.token_index
    before = slice(max(0, until - COMPARED_PLACES), until)
    one, other = (each.logprobs[before] for each in (pair[0], pair[1]))
    return max((abs(mine - theirs) for mine, theirs in zip(one, other, strict=True)), default=None)
