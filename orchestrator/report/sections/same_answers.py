"""The section on whether the arms write the same answers as the control, and where they diverge."""

from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.findings.values import ArmLosslessness, FirstDivergence, Losslessness, PromptOutcome
from orchestrator.report.document import Absent, Fork, Grid, Section
from orchestrator.report.words import MISSING, MORE, counted, ended, listed

MOST_FORKS = 8
MOST_REASONS = 5  # per arm: some contain numbers of their own prompt
SHOWN_CHARACTERS = 240
PROBE_TONES = {"near_tie": ("calm", "near tie"), "real": ("bad", "real difference"), "unknown": ("muted", "unknown")}


def losslessness_section(found: Losslessness | None) -> Section | Absent:
    """Build the section: identical answers, or the places where they diverge."""
    title = "Are the arms' answers the same?"
    if found is None:
        return Absent(title=title, reason="there are no two answers to the same prompt to compare")
    arms = [arm for arm in found.arms if arm.arm != arm.against or arm.deterministic is not None]
    notes = [one.note if one.note.startswith(one.arm) else f"{one.arm}: {one.note}" for one in arms if one.note]
    compared = [one for one in arms if one.identical or one.differs]
    forks = sorted((fork for one in arms for fork in _forks(one)), key=lambda fork: fork.place)
    lines = [one.too_early for one in arms if one.too_early]
    lines += [*dict.fromkeys(notes), *_why_unknown(arms, found.control)]
    if not compared and not lines:
        return Absent(title=title, reason="no two answers could be compared")
    if len(forks) > MOST_FORKS:
        lines.append(f"the first {MOST_FORKS} of {len(forks)} divergences; the table `divergence` holds all")
    return Section(
        key="losslessness",
        title=title,
        lead=_lead(arms),
        grids=(_grid(compared),) if compared else (),
        forks=tuple(forks[:MOST_FORKS]),
        lines=tuple(ended(line) for line in lines),
    )


def _lead(arms: Sequence[ArmLosslessness]) -> str:
    others = [one for one in arms if (one.identical or one.differs) and one.arm != one.against]
    differing = [one for one in others if one.differs]
    how = "At temperature 0, token by token if both report token ids."
    if not others:
        return f"No arm's answers could be compared with another's. {how}"
    if not differing:
        return f"Every answer that was compared is identical: {listed([one.arm for one in others])}. {how}"
    alike = [one for one in others if one.identical and not one.differs and not one.unknown]
    parts = [f"{one.arm} equals {one.against} in all {counted(one.prompts, 'answer')}" for one in alike]
    parts += [
        f"{one.arm} differs from {one.against} in {one.differs} of {counted(one.prompts, 'answer')}"
        for one in differing
    ]
    return f"{listed(parts[:4])}. {how}"


def _grid(arms: Sequence[ArmLosslessness]) -> Grid:
    columns = ("arm", "beside", "same weights", "identical", "differs at", "by the probe", "repeats itself")
    return Grid(columns=columns, rows=tuple(map(_row, arms)), numeric=frozenset((3,))).without_empty()


def _row(one: ArmLosslessness) -> tuple[str, ...]:
    words = {None: MISSING, True: "yes", False: "no"}
    probed = {"near ties": one.near_ties, "real": one.real, "unknown": one.differs - one.near_ties - one.real}
    identical = f"{one.identical} of {one.identical + one.differs}"
    return (
        one.arm,
        "itself" if one.arm == one.against else one.against,
        words[one.same_weights],
        f"{identical}, {one.unknown} unknown" if one.unknown else identical,
        MISSING if one.earliest is None else f"token {one.earliest + 1}",
        ", ".join(f"{number} {name}" for name, number in probed.items() if number) or MISSING,
        words[one.deterministic],
    )


def _why_unknown(arms: Sequence[ArmLosslessness], control: str) -> Iterable[str]:
    """Yield why prompts could not be compared, unless the arm's note states it, and why differences are unknown."""
    for arm in arms:
        name = arm.arm if arm.against == control else f"{arm.arm} beside {arm.against}"
        parted = [one.divergence for one in arm.outcomes if one.divergence is not None]
        reasons = {
            "not compared": [one.reason for one in arm.outcomes if one.reason and one.reason != arm.note],
            "unknown": [divergence.reason for divergence in parted if divergence.verdict == "unknown"],
        }
        for what, every in reasons.items():
            counts = Counter(every).most_common()
            yield from (f"{name}: {count} {what}: {reason}" for reason, count in counts[:MOST_REASONS])
            if others := sum(count for _, count in counts[MOST_REASONS:]):
                yield f"{name}: {others} {what} for other reasons; see --format json"


def _forks(one: ArmLosslessness) -> Iterable[Fork]:
    for outcome in one.outcomes:
        if outcome.divergence is not None:
            yield _fork(one, outcome, outcome.divergence)


def _fork(one: ArmLosslessness, outcome: PromptOutcome, found: FirstDivergence) -> Fork:
    tone, verdict = PROBE_TONES[found.verdict]
    place = found.token_index if found.token_index is not None else found.character_index or 0
    where = f"{'token' if found.token_index is not None else 'character'} {place + 1}"
    turn = f", turn {outcome.turn + 1}" if outcome.turn else ""
    return Fork(
        title=f"{one.arm} against {one.against}, {outcome.prompt_id}{turn}, from {where}",
        arm_name=one.arm,
        place=place,
        tone=tone,
        verdict=verdict,
        before=_end_of(found.context_text),
        control=_start_of(found.control_text, found.control_token),
        arm=_start_of(found.arm_text, found.arm_token),
        remark=" ".join(_remarks(found)),
    )


def _remarks(found: FirstDivergence) -> Iterable[str]:
    yield ended(found.reason)
    if found.gap is not None:
        rounding = "" if found.rounding is None else f", rounding {found.rounding:.4f} nats"
        yield f"Gap {found.gap:.4f} nats{rounding}."
    if found.top:
        top = " and ".join(f"{each.text!r} ({each.log_probability:.3f})" for each in found.top[:2])
        yield f"Most likely there: {top} nats."


def _end_of(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= SHOWN_CHARACTERS else f"{MORE}{text[-SHOWN_CHARACTERS:]}"


def _start_of(text: str | None, token: int | None) -> str:
    if text is None:
        return "(the answer ends here)" if token is None else f"(token id {token}, whose text is not known)"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}{MORE}"
