"""A run's audit, as `audit` prints it and as `run` and `resume` end with. Loads pandas."""

import sys
from collections.abc import Sequence

import click

from db.escaping import shown_line
from orchestrator.audit import AuditResult, Comparison
from orchestrator.commands.documents import show
from orchestrator.commands.published_claims import named_claims
from orchestrator.judging import judge_run
from orchestrator.report.building import build_answer, build_audit
from orchestrator.report.loading import load_material
from orchestrator.report.render_json import audit_values
from orchestrator.report.render_junit import render_junit
from orchestrator.stored_run import StoredRun

JUNIT = "junit"
EXIT_VERDICT = 1  # a verdict is one of those that --fail-on names


def audit_and_show(
    run: StoredRun, *, fail_on: Sequence[str], style: str, against: str | None = None, full: bool = False
) -> int:
    """Judge a run, and print the judgement and, beside it, the claims that are named in `against`.

    Args:
        full: print all that stands behind the answer as well.
    """
    claims = () if against is None else named_claims(against)
    judged = judge_run(run)
    material = load_material(run, judged, claims=claims, record=False)
    if style == JUNIT:
        sys.stdout.write(render_junit(material, is_failure=lambda one: _is_named(one, fail_on)))
        return _exit_code(judged.result, fail_on)
    build = build_audit if full else build_answer
    show(build(material, claims_asked=against is not None), audit_values(material), style)
    return _exit_code(judged.result, fail_on)


def _is_named(one: Comparison, fail_on: Sequence[str]) -> bool:
    return one.verdict in fail_on or (one.verdict == "supported" and one.direction in fail_on)


def _exit_code(result: AuditResult, fail_on: Sequence[str]) -> int:
    """Return the exit code by the verdicts of `--fail-on`, and name the comparisons that have one of them."""
    named = [
        f"{one.treatment} against {one.control}, {one.scope.words}: {one.verdict}"
        for one in result.comparisons
        if (one.over_all or one.turn is not None) and _is_named(one, fail_on)
    ]
    if not named:
        return 0
    click.echo(f"interlace: --fail-on: {shown_line('; '.join(named))}", err=True)
    return EXIT_VERDICT
