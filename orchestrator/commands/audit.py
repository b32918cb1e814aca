"""`interlace audit`, `compare` and `history`: what is stored, judged."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.commands.opening import EXIT_DONE, EXIT_VERDICT, open_stored, plan_of_run
from orchestrator.errors import InputError
from orchestrator.plan import Plan

if TYPE_CHECKING:
    from sqlalchemy import Engine as Database


def audit_run(run_text: str, *, url: str | None, fail_on: Sequence[str], style: str, against: str | None) -> int:
    """`interlace audit`: judge what is stored, now."""
    from db.frames import resolve_run

    database = open_stored(url)
    run_id = resolve_run(database, run_text)
    plan = plan_of_run(database, run_id)
    code = audit_and_show(database, plan, run_id, fail_on=fail_on, style=style)
    if against is not None and style == "table":
        _show_claims(database, plan, run_id, against)
    return code


def audit_and_show(database: "Database", plan: Plan, run_id: str, *, fail_on: Sequence[str], style: str) -> int:
    from orchestrator.caveats import caveats
    from orchestrator.judging import judge_run, measured_trials
    from orchestrator.meaning import findings
    from orchestrator.views.audit_view import show_audit

    judged = judge_run(database, plan, run_id)
    found = findings(database, plan, run_id, trials=measured_trials(database, run_id), result=judged.result)
    show_audit(
        judged.result,
        plan=plan,
        run_id=run_id,
        style=style,
        composition=judged.composition,
        found=found,
        caveats=caveats(database, run_id),
    )
    verdicts = {one.verdict for one in judged.result.comparisons if one.over_all or one.turn is not None}
    return EXIT_VERDICT if verdicts & set(fail_on) else EXIT_DONE


def _show_claims(database: "Database", plan: Plan, run_id: str, against: str) -> None:
    from db.frames import trials
    from orchestrator.configuration.parts import Parts
    from orchestrator.judging import arm_facts, conditions, judge
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
    frame = trials(database, run_id)
    found = beside(judge(frame, plan), claims, arms=arm_facts(frame), conditions=conditions(frame, plan))
    print_claims(found, console())


def compare_two(first_text: str, second_text: str, *, url: str | None) -> None:
    """`interlace compare`: two runs, through the control that both held."""
    from db.frames import resolve_run
    from orchestrator.judging import run_side
    from orchestrator.statistics.compare import compare_runs
    from orchestrator.views.relation_view import print_comparison
    from orchestrator.views.terminal import console

    database = open_stored(url)
    run_ids = [resolve_run(database, text) for text in (first_text, second_text)]
    if run_ids[0] == run_ids[1]:
        raise InputError(f"{first_text} and {second_text} are the same run: name two, see `interlace status`")
    first, second = (run_side(database, plan_of_run(database, run_id), run_id) for run_id in run_ids)
    print_comparison(compare_runs(first, second), console())


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
        out.print("no finished trials match; see `interlace status`, and --simulated for simulated runs")
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
