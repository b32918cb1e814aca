"""What to ask the models after the last round, and what their answers mean. Pure.

Two questions. Where an arm's greedy answer first differs from the control's: is that a near-tie, which passes of
another width may turn, or a real difference? And what does a pass of each width take?

A server's answers are known by their text. Only answers whose text leaves the control's are asked for again, with the
tokens, and only an answer that comes back with the very text that was measured counts: then its tokens are those of the
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
from workers.protocol import Retold, Scored

MOST_LIKELY = 5  # tokens reported per divergence
MOST_WIDTHS = 4  # for each divergence: every width is another pass over the answer
SUBSTITUTE_WIDTHS = (2, 8)  # where every arm decodes one token a pass, what these change stands for rounding
PASS_REPEATS = 9
BUDGET_SHARE, LEAST_BUDGET_S, MOST_BUDGET_S = 0.1, 20.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWidth:
    """How an arm's passes are, as its engine said when it was loaded."""

    arm: str
    verify_width: int | None  # None: plain decoding, or it never loaded
    drafts: bool


Place = tuple[str, str, int]  # arm, prompt id, turn


def budget_s(plan: Plan, *, trials_s: float) -> float:
    """Seconds that all probes of a run may take."""
    if plan.design.probe_budget_s is not None:
        return plan.design.probe_budget_s
    return min(MOST_BUDGET_S, max(LEAST_BUDGET_S, BUDGET_SHARE * trials_s))


# ---- divergences ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One place where an arm's answer leaves the control's."""

    arm: str
    prompt_id: str
    turn: int
    token_index: int
    control_token: int | None  # None: the control's answer ends there
    arm_token: int | None
    messages: tuple[dict[str, str], ...]  # the conversation before the answer
    prompt_sha256: str
    token_ids: tuple[int, ...]  # that both answered before the place
    widths: tuple[int, ...]
    passes_s: float  # about how long a probe takes: for the order only
    reason_against: str | None  # why it is not asked; None: it is


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
    """Every first divergence of a greedy arm from the control, the cheapest first, `probe_prompts` of each arm asked.

    Compared are arms of the control's sampler, on the very same prompt: after a first turn that differs, the second
    turn is another prompt.

    Args:
        answers: in time order. Of the control's to a turn the first counts, of an arm's the first that differs from it.
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
    """The control's first answer to each turn, and one arm's answers to it; only arms of the control's sampler, and
    none at all where that one samples by chance.
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
    """An arm's first answer to each turn, by prompt id and turn."""
    found: dict[tuple[str, int], Answer] = {}
    for answer in answers:
        if answer.arm == arm:
            found.setdefault(answer.key, answer)
    return found


def _widths(own: int, of_run: Iterable[int]) -> tuple[int, ...]:
    """The widths to ask for: those of the run's arms, the arm's own among them."""
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
    """None: equal tokens, another prompt, or a server that returned no token ids."""
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
        reason_against="one answer ends where the other goes on: there is nothing to weigh" if ends else None,
    )


def messages_before(plan: Plan, answer: Answer, before: Sequence[Answer]) -> list[dict[str, str]]:
    """The conversation as the worker had it before this answer, given those to its earlier turns."""
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
    """Near-tie or real difference.

    A choice turns where the log-probabilities of two tokens change places. Passes of other widths were seen to move
    each by up to `rounding`, the two against each other by up to twice that: a lead of no more is a near-tie.

    Args:
        servers_apart: where passes of other widths could not be had: how far two servers' own log-probabilities of the
            same tokens lie apart, in nats. None: that is unknown too.
    """
    control, other = scored.rivals
    gap = control.logprob - other.logprob
    rounding = max((change.largest for change in scored.changes), default=servers_apart)
    told: dict[str, Any] = {
        "gap": gap,
        "rounding": rounding,
        "control_text": control.text,
        "arm_text": other.text,
        "context_text": scored.context_text,
        "top": tuple((each.token_id, each.text, each.logprob) for each in scored.top),
    }
    lead = f"the control's token leads by {gap:.3g} nats"
    if rounding is None:
        return Finding(verdict="unknown", reason=f"{lead}; how far rounding moves them could not be seen", **told)
    widths = ", ".join(str(change.width) for change in scored.changes)
    moved = f"passes of {widths} tokens move log-probabilities here by up to {rounding:.2g}"
    if not scored.changes:
        moved = f"the two servers' own log-probabilities of the same tokens lie up to {rounding:.2g} apart"
    missed = scored.top[0].logprob - control.logprob
    if missed > 2 * rounding:
        reason = f"the control's own token is not the likeliest when computed again, by {missed:.3g} nats; {moved}"
        return Finding(verdict="unknown", reason=reason, **told)
    if abs(gap) <= 2 * rounding:
        return Finding(verdict="near_tie", reason=f"{lead}, and {moved}: twice that may turn the choice", **told)
    return Finding(verdict="real", reason=f"{lead}, and {moved}: twice that is less than the lead", **told)


# ---- passes ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One checkpoint's or draft's passes, and who can run them: the first of the arms that supports it is asked."""

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
    """For each checkpoint that some arm verifies proposals with: its passes of one token and of these arms' widths,
    and of the widest one that they ran beyond them (mlx-dspark copies long matches whole), on its plainest arm; for
    each draft: its pass, on the first arm that has it.
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
        by_plainness = sorted(sharing, key=lambda arm: of_arm[arm.name].drafts)  # stable: the plan's order otherwise
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
    """The arm's first turn of median length, with half of its answer; None: it has no answer with tokens."""
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
    """The answers to ask for again, of pairs whose texts differ and of which one has no token ids.

    The shortest come first, `probe_prompts` per arm.
    """
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
    """Whether two answers to the same prompt differ as texts, where at least one has no token ids."""
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
    """The answers; those that were repeated have their token ids."""

    def known(answer: Answer) -> Answer:
        again = told.get((answer.arm, *answer.key))
        if again is None or answer.token_ids or answer.text != again.text:
            return answer
        return replace(answer, token_ids_json=json.dumps(again.token_ids))

    return [known(answer) for answer in answers]


def scorer(plan: Plan, answers: Iterable[Answer], widths: Iterable[ArmWidth]) -> str:
    """The arm that scores the control's tokens: the control, or where that is a server, the plainest arm that runs the
    same checkpoint in process.
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
        None: one of the two returned none, they run other checkpoints, or no token comes before the place.
    """
    checkpoints = {arm.name: arm.checkpoint["name"] for arm in plan.arms}
    pair = [told.get((arm, question.prompt_id, question.turn)) for arm in (plan.control, question.arm)]
    if checkpoints[plan.control] != checkpoints[question.arm] or pair[0] is None or pair[1] is None:
        return None
    until = question.token_index
    before = slice(max(0, until - COMPARED_PLACES), until)
    one, other = (each.logprobs[before] for each in (pair[0], pair[1]))
    return max((abs(mine - theirs) for mine, theirs in zip(one, other, strict=True)), default=None)
