"""A run's audit, as `audit` prints it and as `run` and `resume` end with. Loads pandas."""

from collections.abc import Sequence

import click

from db.escaping import shown_line
from orchestrator.audit import AuditResult
from orchestrator.caveats import caveats
from orchestrator.errors import InputError
from orchestrator.judging import arm_facts, conditions, judge_run
from orchestrator.meaning import findings
from orchestrator.stored_run import StoredRun
from orchestrator.views.audit_view import show_audit
from orchestrator.views.terminal import console

EXIT_VERDICT = 1  # a verdict is one of those that --fail-on names


def audit_and_show(run: StoredRun, *, fail_on: Sequence[str], style: str, against: str | None = None) -> int:
    """Judge a run, and print the judgement and, beside it, the claims that are named in `against`."""
    judged = judge_run(run)
    show_audit(
        judged.result,
        plan=run.plan,
        run_id=run.run_id,
        style=style,
        composition=judged.composition,
        found=findings(run, judged.result),
        caveats=(*caveats(run.database, run.run_id), *judged.revisions),
    )
    if against is not None and style == "table":
        _show_claims(run, judged.result, against)
    return _exit_code(judged.result, fail_on)


def _exit_code(result: AuditResult, fail_on: Sequence[str]) -> int:
    """Whether a verdict is one of those to fail on; then the comparisons that have it are named."""
    named = [
        f"{one.treatment} against {one.control}, {one.scope.words}: {one.verdict}"
        for one in result.comparisons
        if (one.over_all or one.turn is not None) and one.verdict in fail_on
    ]
    if not named:
        return 0
    click.echo(f"interlace: --fail-on: {shown_line('; '.join(named))}", err=True)
    return EXIT_VERDICT


def _show_claims(run: StoredRun, result: AuditResult, against: str) -> None:
    from orchestrator.configuration.groups import Parts  # hydra: few audits need it
    from orchestrator.statistics.claims import beside, claim_of
    from orchestrator.views.relation_view import print_claims

    parts = Parts()
    known = parts.options("claim")
    names = known if against == "claims" else against.split(",")
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"--against {unknown[0]}: no such claim; type `claims` for all, or some of {', '.join(known)}")
    parts.load([("claim", name) for name in names])
    claims = [claim_of(parts.values(("claim", name))) for name in names]
    found = beside(result, claims, arms=arm_facts(run.trials), conditions=conditions(run.trials, run.plan))
    print_claims(found, console())
