"""An audit as Markdown, for pasting into an issue."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from db.escaping import in_markdown
from orchestrator.findings.turns import late_turns
from orchestrator.plan import Plan
from orchestrator.views.audit_view import (
    METRIC_WORDS,
    drift_lines,
    footnotes,
    interval_text,
    number,
    overall,
    p_text,
    plan_is_simulated,
    scope,
    sentence,
    verdict_words,
    wins,
)
from orchestrator.views.meaning_view import sections

if TYPE_CHECKING:
    from orchestrator.audit import AuditResult
    from orchestrator.findings.values import Findings


def markdown(
    result: "AuditResult", *, plan: Plan, run_id: str, found: "Findings | None" = None, caveats: Sequence[str] = ()
) -> str:
    """For pasting into an issue: the sentences, the verdicts, a table for each finding, the footnotes."""
    lines = [f"**{in_markdown(plan.experiment)}**, run {in_markdown(run_id)}", ""]
    if plan_is_simulated(plan):
        lines += ["**Simulated: a fake clock, nothing was measured.**", ""]
    lines += [f"**{in_markdown(line)}**\n" for line in caveats]
    if found is not None and found.recommendation.disagree:
        lines += [in_markdown(found.recommendation.sentence), ""]
    lines += [f"- **{verdict_words(one.verdict)}**: {in_markdown(sentence(one))}" for one in overall(result)]
    lines += [f"- **late**: {in_markdown(line)}" for line in _late(result, found)]
    lines += ["", f"{METRIC_WORDS[result.metric]}, treatment over control {in_markdown(result.control)}:", ""]
    head = ("treatment", "prompts", "ratio", f"{1 - result.alpha:.0%} interval", "p", "won", "verdict")
    rows = [
        (
            one.treatment,
            scope(one),
            number(one.ratio),
            interval_text(one.ci_low, one.ci_high),
            p_text(one.p_value),
            wins(one),
            verdict_words(one.verdict),
        )
        for one in result.comparisons
    ]
    lines += _markdown_table(head, rows)
    for section in sections(found) if found is not None else ():
        lines += ["", f"**{in_markdown(section.title)}**", ""]
        lines += _markdown_table(section.head, section.rows) if section.rows else []
        lines += ["", *(f"- {in_markdown(line)}" for line in section.lines)] if section.lines else []
    lines += ["", *(f"- {in_markdown(line)}" for line in (*drift_lines(result), *footnotes(result)))]
    return "\n".join(lines) + "\n"


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    made = ["| " + " | ".join(map(in_markdown, head)) + " |", "|" + "---|" * len(head)]
    return made + ["| " + " | ".join(in_markdown(cell) for cell in row) + " |" for row in rows]


def _late(result: "AuditResult", found: "Findings | None") -> Sequence[str]:
    return late_turns(found.turns, control=result.control) if found is not None else ()
