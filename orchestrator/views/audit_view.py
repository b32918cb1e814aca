"""An audit on the terminal, as JSON and as Markdown: the verdict in words first, then the numbers behind it."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from orchestrator.findings.turns import late_turns
from orchestrator.jsonable import bounded
from orchestrator.plan import Plan
from orchestrator.statistics.comparability import Scope
from orchestrator.views.audit_drawing import VERDICT_STYLES, print_ratios, print_rounds
from orchestrator.views.meaning_view import Section, sections
from orchestrator.views.terminal import console
from orchestrator.views.terminal import table as new_table

if TYPE_CHECKING:
    from orchestrator.audit import AuditResult, Comparison
    from orchestrator.findings.values import Findings
    from orchestrator.statistics.factorial import Factorial
    from orchestrator.statistics.factors import Table
    from orchestrator.statistics.observations import ArmSummary

MISSING = "-"
RUN_DRIFT = "run_drift"  # a reason that has its own line
METRIC_WORDS = {
    "end_to_end_tps": "end-to-end rate (tokens/s)",
    "decode_tps": "decode rate (tokens/s)",
    "prefill_tps": "prefill rate (tokens/s)",
    "ttft_s": "time to first token (s)",
}


def show_audit(
    result: "AuditResult",
    *,
    plan: Plan,
    run_id: str,
    style: str,
    composition: "tuple[Table, Factorial] | None" = None,
    found: "Findings | None" = None,
    caveats: Sequence[str] = (),
) -> None:
    """Print an audit as `table`, `json` or `markdown`.

    Args:
        found: what the numbers mean; None: not asked.
        caveats: what to know beforehand, as `word: what`.
    """
    if style == "json":
        body = {"run_id": run_id} | asdict(result) | {"findings": None if found is None else asdict(found)}
        body |= {"caveats": list(caveats)}
        sys.stdout.write(json.dumps(bounded(body), indent=1, allow_nan=False) + "\n")
    elif style == "markdown":
        from orchestrator.views.audit_markdown import markdown

        sys.stdout.write(markdown(result, plan=plan, run_id=run_id, found=found, caveats=caveats))
    else:
        out = console()
        print_audit(result, plan=plan, run_id=run_id, out=out, found=found, caveats=caveats)
        if composition is not None:
            print_composition(*composition, out)


# ---- terminal ----


def print_audit(
    result: "AuditResult",
    *,
    plan: Plan,
    run_id: str,
    out: Console,
    found: "Findings | None" = None,
    caveats: Sequence[str] = (),
) -> None:
    """The whole audit in 80 columns."""
    out.print()
    out.print(Text(f"{plan.experiment}, run {run_id}", style="bold"))
    if plan_is_simulated(plan):
        out.print(Text("SIMULATED: a fake clock, nothing was measured", style="bold red"))
    for line in caveats:
        out.print(Text(line, style="bold yellow"))
    out.print()
    _print_verdicts(result, found, out)
    if result.comparisons:
        _print_comparisons(result, out)
        print_ratios(result, out)
    else:
        out.print(Text(result.summary))
        out.print()
    if found is not None:
        print_rounds(found.speed_by_round, out)
    for line in drift_lines(result):
        out.print(Text(line))
    out.print()
    _print_arms(result.arms, out)
    for section in sections(found) if found is not None else ():
        print_section(section, out)
    for line in footnotes(result):
        out.print(Text(line))


def _print_verdicts(result: "AuditResult", found: "Findings | None", out: Console) -> None:
    """A sentence a treatment, and what an average over turns and workloads would hide."""
    if found is not None and found.recommendation.disagree:
        out.print(Text(found.recommendation.sentence, style="bold"))
        out.print()
    for comparison in overall(result):
        out.print(headline(comparison))
    for line in late_turns(found.turns, control=result.control) if found is not None else ():
        out.print(Text(f"late: {line}", style="bold yellow"))
    out.print()


def plan_is_simulated(plan: Plan) -> bool:
    from orchestrator.planning.residency import is_simulated

    return any(is_simulated(arm) for arm in plan.arms)


def overall(result: "AuditResult") -> list["Comparison"]:
    """The comparisons over all prompts and turns."""
    return [one for one in result.comparisons if one.over_all]


def headline(one: "Comparison") -> Text:
    """A verdict as a sentence."""
    text = Text()
    text.append(f"{verdict_words(one.verdict)}: ", style=VERDICT_STYLES[one.verdict])
    text.append(sentence(one))
    return text


def sentence(one: "Comparison") -> str:
    """What the verdict says of the two arms."""
    pair = f"{one.treatment} against {one.control}"
    if one.split is not None:
        return f"{pair}: better for one thing and worse for another, so no overall winner"
    if (varies := one.varies) is not None:
        return f"{pair}: {varies.text}"
    if one.verdict == "supported" and one.ratio is not None:
        return f"{one.treatment} is {percent(one)} {one.direction} than {one.control}"
    if one.verdict == "no_difference":
        return f"{pair} make no difference that matters"
    if one.verdict == "could_be_drift":
        return f"{pair}: what was seen may be the machine, not the setting"
    return f"{pair}: {'; '.join(reason.text for reason in one.reasons[:2])}"


def percent(one: "Comparison") -> str:
    """The size of an effect as a speed difference in percent, of the treatment relative to the control."""
    if one.ratio is None:
        return MISSING
    speed = 1 / one.ratio if one.metric == "ttft_s" else one.ratio
    return f"{abs(speed - 1):.1%}" if speed < 2 else f"{speed:.2f}x as fast, that is {speed - 1:.0%}"


def verdict_words(verdict: str) -> str:
    return verdict.replace("_", " ")


def _print_comparisons(result: "AuditResult", out: Console) -> None:
    made = new_table(
        "treatment", "prompts", "ratio", "95 % interval", "p", "won", "verdict", right=("ratio", "p", "won")
    )
    made.padding = (0, 1, 0, 0)
    made.columns[3].header = f"{1 - result.alpha:.0%} interval"
    shown = None
    for one in result.comparisons:
        name = Text(one.treatment if one.treatment != shown else "")
        shown = one.treatment
        verdict = Text(verdict_words(one.verdict), style=VERDICT_STYLES[one.verdict])
        made.add_row(
            name,
            Text(scope(one)),
            number(one.ratio),
            interval_text(one.ci_low, one.ci_high),
            p_text(one.p_value),
            wins(one),
            verdict,
        )
    out.print(Text(f"{METRIC_WORDS[result.metric]}, treatment over control {result.control}"))
    out.print(made)
    out.print()


def print_section(section: Section, out: Console) -> None:
    """A table with its title, and its lines."""
    out.print(Text(section.title, style="bold"))
    if section.rows:
        made = new_table(*section.head, right=[name for name in section.head if name not in section.words])
        made.padding = (0, 1, 0, 0)
        for row in section.rows:
            made.add_row(*(Text(cell) for cell in row))
        out.print(made)
    for line in section.lines:
        out.print(Text(line))
    out.print()


def print_composition(table: "Table", found: "Factorial", out: Console) -> None:
    """Two factors: what each does alone, both together, and whether they compose."""
    out.print(Text(f"{table.first} x {table.second}, over {' and '.join(table.base)}"))
    made = new_table("", "ratio", "interval", right=("ratio",))
    for one in found.compositions:
        for words, effect in (
            (f"{one.first} alone", one.first_alone),
            (f"{one.second} alone", one.second_alone),
            ("both", one.both),
            ("both, of the product of the two", one.composition),
        ):
            made.add_row(Text(words), number(effect.ratio), interval_text(effect.ci_low, effect.ci_high))
    out.print(made)
    out.print()


def best_lines(result: "AuditResult") -> Iterable[str]:
    """Which arms may be the best, over all and in each class: never one without the other."""
    if len({one.treatment for one in result.comparisons}) < 2:
        return
    everyone = {result.control, *(one.treatment for one in result.comparisons)}
    for each in result.best:
        if not each.arms:
            yield f"no arm is among the best everywhere ({each.scope.words}): it depends on the prompts, see each"
        elif set(each.arms) != everyone:
            yield f"not distinguishable from the best, {each.scope.words}: {', '.join(each.arms)}"
        elif each.scope == Scope():
            yield "over all no arm is distinguishable from the best"


def _print_arms(arms: Sequence["ArmSummary"], out: Console) -> None:
    # Heads of two lines leave room for the arms' names.
    made = new_table(
        "arm", "trials", "ttft (s)", "decode", "end\nto end", "token\np95 (ms)", "accept\nlength", "accepted"
    )
    for column in made.columns[1:]:
        column.justify = "right"
    for arm in arms:
        if arm.prompt_class is None:
            made.add_row(
                Text(arm.label),
                str(arm.trials),
                number(arm.ttft_s),
                number(arm.decode_tps, digits=2),
                number(arm.end_to_end_tps, digits=2),
                MISSING if arm.inter_token_p95_s is None else number(1000 * arm.inter_token_p95_s, digits=1),
                number(arm.accept_length, digits=2),
                MISSING if arm.acceptance_rate is None else f"{arm.acceptance_rate:.0%}",
            )
    out.print(Text("each arm's median over all prompts (rates in tokens a second)"))
    out.print(made)
    out.print()


# ---- words and numbers ----


def scope(one: "Comparison") -> str:
    """Which prompts a comparison is about."""
    return one.scope.words


def number(value: float | None, *, digits: int = 3) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def interval_text(low: float | None, high: float | None) -> str:
    return MISSING if low is None and high is None else f"{number(low)} to {number(high)}"


def p_text(p_value: float | None) -> str:
    if p_value is None:
        return MISSING
    return f"{p_value:.3f}" if p_value >= 0.0005 else "<0.001"


def wins(one: "Comparison") -> str:
    return MISSING if one.wins is None else f"{one.wins}/{one.rounds}"


def drift_lines(result: "AuditResult") -> Iterable[str]:
    """The run's drift and the A/A floor."""
    if result.drift is None:
        yield f"drift of the run: unknown ({result.drift_reason})"
    else:
        yield f"drift of the run: {result.drift:+.1%} from the first control run to the last"
    for floor in result.floors:
        if floor.scope == Scope():
            effect = floor.effect
            open_ended = not (effect.ci_low > 0 and math.isfinite(effect.ci_high))
            span = "too few rounds for an interval" if open_ended else interval_text(effect.ci_low, effect.ci_high)
            yield f"A/A floor: the control against itself {effect.ratio:.3f} ({span})"


def footnotes(result: "AuditResult") -> Iterable[str]:
    """The best arms, what excluded trials would change, and each reason once."""
    yield from best_lines(result)
    for one in overall(result):
        if one.included is not None and one.included.verdict != one.verdict:
            words = verdict_words(one.included.verdict)
            first = f"{one.treatment}: with the first attempts, excluded trials too,"
            yield f"{first} it would be {words} ({number(one.included.ratio)})"
    seen: set[str] = set()
    for one in overall(result):
        for reason in one.reasons:
            named = reason.text.startswith((f"{one.treatment}:", f"{one.control}:"))
            line = reason.text if named else f"{one.treatment}: {reason.text}"
            if line not in seen and reason.code != RUN_DRIFT:
                seen.add(line)
                yield line
