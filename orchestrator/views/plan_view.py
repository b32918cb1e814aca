"""A plan on the terminal: the trials in their order, and what they could and could not show."""

import string
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.plan import Plan
from orchestrator.planning.residency import is_simulated
from orchestrator.running.gate import gate_words
from orchestrator.schedule import AA_LABEL, ScheduledTrial, minimum_rounds, rounds_by_class, rounds_together
from orchestrator.views.terminal import table

if TYPE_CHECKING:
    from orchestrator.statistics.judge_design import DesignJudgement

ARMS_SHOWN = 40
ROUNDS_SHOWN = 4
PLACES_SHOWN = 12  # per round


def print_plan(
    plan: Plan,
    schedule: Sequence[ScheduledTrial],
    out: Console,
    *,
    first: str = "",
    extra: Sequence[tuple[str, str]] = (),
) -> None:
    """Print the plan.

    Args:
        first: a line that goes before all: what people ask first.
        extra: further lines (head, words), such as memory and duration.
    """
    names = letters(plan)
    if first:
        out.print(Text(first, style="bold"))
        out.print()
    out.print(_arms_table(plan, names))
    out.print()
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for head, words in [*_facts(plan, schedule, names), *extra]:
        facts.add_row(head, words)
    out.print(facts)
    out.print()


def print_judgements(found: Sequence["DesignJudgement"], *, plan: Plan, effect: float, out: Console) -> None:
    """Print a design's results on simulated machines, one line per drift profile."""
    entries, treatments = len(plan.arms) + plan.design.aa, len(plan.arms) - 1
    out.print(Text(f"{plan.design.rounds} rounds of {entries} entries, {found[0].runs} simulated runs per profile"))
    out.print(Text("SIMULATED: properties of the design, nothing was measured", style="bold red"))
    right = ("size", "errors", "supported", "covers")
    made = table("drift", "size", "errors", f"finds {effect:+.1%}", "supported", "covers", "interval", right=right)
    for one in found:
        width = "open" if one.half_width is None else f"±{one.half_width:.1%}"
        made.add_row(
            one.setting.profile.replace("_", " "),
            f"{one.setting.size:+.0%}",
            f"{one.false_positives:.1%}",
            f"{one.power:.1%}",
            f"{one.supported:.1%}",
            f"{one.coverage:.1%}",
            width,
        )
    out.print(made)
    any_of = f" for any of the {treatments} treatments" if treatments > 1 else ""
    out.print(
        Text(
            f"errors: a difference found{any_of} where there is none; should be at most {plan.design.alpha:.0%};"
            f" supported: the verdict on a true {effect:+.1%} of one treatment"
        )
    )


def letters(plan: Plan) -> dict[str, str]:
    """Return a short sign for each label of a round: A, B, ... for the arms, A' for the control's second entry."""
    signs = {arm.name: _letter(index) for index, arm in enumerate(plan.arms)}
    return signs | {AA_LABEL: signs[plan.control] + "'"}


def _letter(index: int) -> str:
    """Return A .. Z, AA, AB, ... as spreadsheets do."""
    alphabet = string.ascii_uppercase
    text = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, len(alphabet))
        text = alphabet[digit] + text
    return text


def _arms_table(plan: Plan, names: dict[str, str]) -> RenderableType:
    made = table("", "arm", "engine", "draft", "role")
    for arm in plan.arms[:ARMS_SHOWN]:
        role = "control" if arm.name == plan.control else ""
        draft = "" if arm.draft is None else str(arm.draft["name"])
        made.add_row(names[arm.name], Text(arm.name), str(arm.engine["name"]), draft, role)
    if len(plan.arms) > ARMS_SHOWN:
        made.add_row("", f"... and {len(plan.arms) - ARMS_SHOWN} more", "", "", "")
    return made


def _facts(plan: Plan, schedule: Sequence[ScheduledTrial], names: dict[str, str]) -> Iterator[tuple[str, str]]:
    design = plan.design
    what = "one prompt" if design.interleave_by == "prompt" else "the whole prompt set"
    twice = ", the control twice" if design.aa else ""
    drawn = "in a random order" if design.order == "random" else "in the order of a randomised Williams square"
    yield "rounds", f"{design.rounds}, each {what}: every arm once {drawn}{twice}"
    yield "prompts", _prompts(plan)
    yield "trials", _trials(schedule)
    yield "order", _order(schedule, names)
    yield "level", _level(plan)
    yield "compares", f"{design.metric} on temperature {_temperatures(plan)}; evidence: {design.evidence}"
    yield "models", "all loaded at once" if design.residency == "resident" else "one at a time, loaded for each trial"
    if not all(is_simulated(arm) for arm in plan.arms):
        yield "gate", gate_words(plan.gate)
    for note in plan.notes:
        yield "note", note
    yield "plan", f"{plan.sha256[:16]} (seed {design.seed})"


def _prompts(plan: Plan) -> str:
    rounds = rounds_by_class(plan)
    counts = Counter(prompt.prompt_class for prompt in plan.prompts)
    each = ", ".join(f"{name} {count} in {rounds[name]} rounds" for name, count in counts.items())
    return f"{len(plan.prompts)}: {each}"


def _trials(schedule: Sequence[ScheduledTrial]) -> str:
    kinds = Counter(trial.kind for trial in schedule)
    return (
        f"{len(schedule)}: {kinds['measured']} measured, {kinds['bracket']} control runs at the ends,"
        f" {kinds['warmup']} {'warm-up' if kinds['warmup'] == 1 else 'warm-ups'} (stored, left out)"
    )


def _order(schedule: Sequence[ScheduledTrial], names: dict[str, str]) -> str:
    rounds: dict[int, list[str]] = {}
    for trial in schedule:
        if trial.round is not None and trial.round < ROUNDS_SHOWN:
            rounds.setdefault(trial.round, []).append(names[trial.label])
    shown = [
        " ".join(order[:PLACES_SHOWN]) + (" ..." if len(order) > PLACES_SHOWN else "") for order in rounds.values()
    ]
    return " | ".join(shown) + " | ..."


def _level(plan: Plan) -> str:
    best = 2.0 ** (1 - plan.design.rounds // rounds_together(plan))
    best_text = f"p = {best:.2g}" if best >= 1e-4 else "p < 0.0001"
    return (
        f"{plan.design.rounds} rounds can reach {best_text}; {plan.design.alpha:g} needs"
        f" {minimum_rounds(plan.design.alpha) * rounds_together(plan)}"
    )


def _temperatures(plan: Plan) -> str:
    return ", ".join(sorted({f"{arm.sampling['temperature']:g}" for arm in plan.arms}))
