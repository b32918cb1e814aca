"""`interlace audit`, `compare` and `history`: what is stored, judged."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.commands.opening import EXIT_DONE, EXIT_VERDICT, measured_run, open_stored
from orchestrator.errors import IncompleteError, InputError

if TYPE_CHECKING:
    from orchestrator.audit import AuditResult
    from orchestrator.stored_run import StoredRun


def audit_run(run_text: str, *, url: str | None, fail_on: Sequence[str], style: str, against: str | None) -> int:
    """`interlace audit`: judge what is stored, now.

    Raises:
        IncompleteError: nothing is measured; or the run is not finished, and no verdict so far is of `fail_on`.
    """
    from db.live import life

    database = open_stored(url)
    run = measured_run(database, run_text)
    code = audit_and_show(run, fail_on=fail_on, style=style, against=against)
    if fail_on and code == EXIT_DONE and (status := life(database, run.run_id).status) != "done":
        raise IncompleteError(f"run {run.run_id} ({status}): not finished; no verdict so far is one of --fail-on")
    return code


def audit_and_show(run: "StoredRun", *, fail_on: Sequence[str], style: str, against: str | None = None) -> int:
    """Judge a run, and print the judgement and, beside it, the claims that are named in `against`."""
    from orchestrator.caveats import caveats
    from orchestrator.judging import judge_run
    from orchestrator.meaning import findings
    from orchestrator.views.audit_view import show_audit

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


def _exit_code(result: "AuditResult", fail_on: Sequence[str]) -> int:
    """Whether a verdict is one of those to fail on; then the comparisons that have it are named."""
    from db.escaping import shown_line

    named = [
        f"{one.treatment} against {one.control}, {one.scope.words}: {one.verdict}"
        for one in result.comparisons
        if (one.over_all or one.turn is not None) and one.verdict in fail_on
    ]
    if not named:
        return EXIT_DONE
    click.echo(f"interlace: --fail-on: {shown_line('; '.join(named))}", err=True)
    return EXIT_VERDICT


def _show_claims(run: "StoredRun", result: "AuditResult", against: str) -> None:
    from orchestrator.configuration.groups import Parts
    from orchestrator.judging import arm_facts, conditions
    from orchestrator.statistics.claims import beside, claim_of
    from orchestrator.views.relation_view import print_claims
    from orchestrator.views.terminal import console

    parts = Parts()
    known = parts.options("claim")
    names = known if against == "claims" else against.split(",")
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"--against {unknown[0]}: no such claim; say `claims` for all, or of {', '.join(known)}")
    parts.load([("claim", name) for name in names])
    claims = [claim_of(parts.values(("claim", name))) for name in names]
    found = beside(result, claims, arms=arm_facts(run.trials), conditions=conditions(run.trials, run.plan))
    print_claims(found, console())


def compare_two(first_text: str, second_text: str, *, url: str | None) -> None:
    """`interlace compare`: two runs, through the control that both held."""
    from orchestrator.judging import evenings_of, run_side
    from orchestrator.statistics.compare import compare_runs
    from orchestrator.views.relation_view import print_comparison
    from orchestrator.views.terminal import console

    database = open_stored(url)
    sides = [measured_run(database, text) for text in (first_text, second_text)]
    if sides[0].run_id == sides[1].run_id:
        raise InputError(f"{first_text} and {second_text} are the same run: name two, see `interlace status`")
    first, second = map(run_side, sides)
    evenings = evenings_of(database, first.run_id, without=second.run_id)
    print_comparison(compare_runs(first, second, evenings=evenings), console())


def show_history(*, url: str | None, metric: str, simulated: bool, filters: Mapping[str, str | None]) -> None:
    """`interlace history`: every configuration that matches, over time."""
    from db.history import SERIES, VERSIONS, arm_history
    from orchestrator.judging import SHORT_HASH, explanations
    from orchestrator.statistics.history import Point, change_points
    from orchestrator.views.relation_view import print_explanations, print_history
    from orchestrator.views.terminal import console

    out = console()
    rows = arm_history(open_stored(url), metric=metric, filters=filters, simulated=simulated)
    if rows.empty:
        asked = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in filters.items() if value is not None)
        kind = "simulated" if simulated else "real"
        out.print(f"no finished trials of {kind} runs match {asked}".rstrip() + "; `interlace status` lists the runs")
    for _, series in rows.groupby(list(SERIES), sort=False):
        points = [
            Point(
                run_id=row["run_id"],
                at=row["created_at"].to_pydatetime(),
                value=row["value"],
                versions={name: row[name] for name in VERSIONS if isinstance(row[name], str)},
            )
            for row in series.to_dict("records")
        ]
        newest = series.iloc[-1]
        name = f"{newest['arm']} [{newest['config_sha256'][:SHORT_HASH]}] on {newest['host']}"
        print_history(name, points, change_points(points), metric, out)
    for _, together in rows.groupby(["workload_sha256", "host"], sort=False):
        print_explanations(explanations(together), out)
