"""What the commands do: compose, open, run, judge, show. Thin: the work is in the modules it calls.

Imports are inside the functions: a command loads what it needs and no more.
"""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Plan, dump, load

if TYPE_CHECKING:
    from sqlalchemy import Engine as Database

    from orchestrator.running.recorder import Recorder
    from orchestrator.running.runner import Observer

EXIT_DONE, EXIT_VERDICT = 0, 1


def optional_path(text: str | None) -> Path | None:
    """An optional path as typed: the command line keeps it as text."""
    return None if text is None else Path(text)


# ---- plan ----


def show_plan(overrides: Sequence[str], *, config_dir: str | None, as_json: bool) -> None:
    """`interlace plan`."""
    from orchestrator.configuration.compose import make_plan
    from orchestrator.views.machine_lines import machine_lines, noise_here

    composed = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here)
    if as_json:
        sys.stdout.write(dump(composed.plan) + "\n")
        return
    from db.session import database_url
    from orchestrator.schedule import build_schedule
    from orchestrator.views.plan_view import print_plan
    from orchestrator.views.terminal import console

    schedule = build_schedule(composed.plan)
    lines = machine_lines(composed.plan, schedule, url=database_url(composed.db_url))
    print_plan(composed.plan, schedule, console(), extra=lines)


def simulate_design(
    overrides: Sequence[str],
    *,
    config_dir: str | None,
    profiles: Sequence[str],
    effect: str,
    noise: str,
    drift: str | None,
    runs: int,
) -> None:
    """`interlace simulate`: the plan's design on simulated machines."""
    from orchestrator.configuration.compose import make_plan
    from orchestrator.configuration.detecting import percentage
    from orchestrator.statistics.drift import PROFILES
    from orchestrator.statistics.judge_design import judge_design
    from orchestrator.views.machine_lines import noise_here
    from orchestrator.views.plan_view import print_judgements
    from orchestrator.views.terminal import console

    plan = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here).plan
    true_effect = percentage(effect, what="--effect", low=-0.9, high=10)
    found = judge_design(
        profiles or PROFILES,
        entries=len(plan.arms) + plan.design.aa,
        rounds=plan.design.rounds,
        alpha=plan.design.alpha,
        effect=true_effect,
        noise=percentage(noise, what="--noise", low=0, high=1),
        size=None if drift is None else percentage(drift, what="--drift", low=-0.9, high=1),
        runs=runs,
        seed=plan.design.seed,
    )
    print_judgements(found, plan=plan, effect=true_effect, runs=runs, out=console())


# ---- run, resume ----


def run_now(overrides: Sequence[str], *, config_dir: str | None, fail_on: Sequence[str], quiet: bool) -> int:
    """`interlace run`: plan, look at the machine, store the plan, run it, audit it."""
    from db.session import database_path, database_url, open_database
    from orchestrator.configuration.compose import make_plan
    from orchestrator.running.preparation import find_weights, refuse_what_does_not_fit
    from orchestrator.running.recorder import create_run
    from orchestrator.schedule import build_schedule
    from orchestrator.views.machine_lines import machine_lines, noise_here
    from orchestrator.views.plan_view import print_plan
    from orchestrator.views.terminal import console
    from workers.host import read_host

    composed = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here)
    weights = find_weights(composed.plan)
    refuse_what_does_not_fit(composed.plan)
    url = database_url(composed.db_url)
    check_machine(composed.plan, database_path(url))
    database = open_database(url)
    if not quiet:
        schedule = build_schedule(composed.plan)
        print_plan(composed.plan, schedule, console(), extra=machine_lines(composed.plan, schedule, url=url))
    log_root = database_path(url).parent / "logs"
    recorder = create_run(database, composed.plan, host=read_host(), weights=weights, log_root=log_root)
    return _execute(recorder, fail_on=fail_on, quiet=quiet)


def resume_run(run_text: str, *, url: str | None, fail_on: Sequence[str], quiet: bool) -> int:
    """`interlace resume`: what is stored stays; a round cut short is replayed whole."""
    from db.frames import resolve_run
    from orchestrator.running.preparation import find_weights
    from orchestrator.running.recorder import reopen_run

    database = _open(url)
    run_id = resolve_run(database, run_text)
    plan = _stored_plan(database, run_id)
    recorder = reopen_run(database, plan, run_id)
    recorder.refuse_if_held()
    recorder.refuse_other_weights(find_weights(plan))
    check_machine(plan, Path(database.url.database or "."))
    return _execute(recorder, fail_on=fail_on, quiet=quiet)


def _execute(recorder: "Recorder", *, fail_on: Sequence[str], quiet: bool) -> int:
    """Run what is left and judge it. However it ends, the run's state says so."""
    from orchestrator.views.terminal import ProgressObserver, SilentObserver, console

    out = console()
    run_id = recorder.run_id
    if not quiet:
        out.print(f"run {run_id}")
    try:
        with _terminated_as_interrupted():
            with SilentObserver() if quiet else ProgressObserver(out) as observer:
                run_recorded(recorder, observer=observer)
    except KeyboardInterrupt:
        recorder.finish("interrupted")
        out.print(f"interrupted; what is finished is stored. Go on with: interlace resume {run_id}")
        raise
    except InputError as error:
        recorder.finish("failed", note=str(error))
        raise
    except Exception as error:
        recorder.finish("interrupted", note=f"{type(error).__name__}: {error}")
        raise
    recorder.finish("done")
    return _audit_and_show(recorder.database, recorder.plan, run_id, fail_on=fail_on, style="table")


def check_machine(plan: Plan, database: Path) -> None:
    """Make this machine ready for a run: end what earlier ones left, refuse what stands in the way.

    Raises:
        RefusedError: a process that may be a leftover, or a battery.
    """
    from dataclasses import replace

    from orchestrator.planning.residency import is_simulated
    from orchestrator.running.readiness import clear_leftovers, journal_beside, refuse_battery
    from workers.telemetry import read_machine

    measured = not all(is_simulated(arm) for arm in plan.arms)
    gate = plan.gate if measured else replace(plan.gate, orphans="report", power_source="any")
    clear_leftovers(journal_beside(database), gate, _warn)
    refuse_battery(gate, read_machine())


def _warn(text: str) -> None:
    sys.stderr.write(f"interlace: {text}\n")


def run_recorded(recorder: "Recorder", *, observer: "Observer") -> None:
    """Run what is left of a stored run.

    Raises:
        InterlaceError: see `orchestrator.running.runner.Runner.run`.
    """
    from orchestrator.judging import decisions, measured_trials
    from orchestrator.running.crew import Crew
    from orchestrator.running.preparation import find_weights
    from orchestrator.running.progress import remainder
    from orchestrator.running.readiness import journal_beside
    from orchestrator.running.runner import Runner
    from orchestrator.running.watching import watched
    from orchestrator.schedule import build_schedule
    from workers.host import current_lease, read_host
    from workers.settling import wait_until_settled

    plan = recorder.plan
    schedule = build_schedule(plan)
    stored = recorder.stored()

    def decided() -> dict[str, str]:
        if plan.design.stop != "early":
            return {}
        return decisions(measured_trials(recorder.database, recorder.run_id), plan)

    done = frozenset(decided())
    left = remainder(schedule, stored.trials, dropped=stored.dropped | done, replays=plan.gate.replays)
    if not left.units:
        return
    for index in left.broken_rounds:
        recorder.exclude_round(index, reason="round_cut_short: replayed whole")
    recorder.take_lease(current_lease())
    log_dir = recorder.log_dir()
    log_dir.mkdir(parents=True, exist_ok=True)
    weights = find_weights(plan)
    crew = Crew(
        run_id=recorder.run_id,
        log_dir=log_dir,
        deadlines=plan.design.deadlines,
        swap=plan.design.residency == "swap",
        weights={name: found.for_worker for name, found in weights.items()},
        journal_path=journal_beside(Path(recorder.database.url.database or ".")),
        note=observer.noted,
        settle=None if recorder.simulated else lambda: wait_until_settled(plan.gate.settle_s),
    )
    with watched(plan, observer.waiting) as (lookout, keeper):
        Runner(
            plan=plan,
            schedule=schedule,
            recorder=recorder,
            crew=crew,
            host=read_host(),
            observer=observer,
            lookout=lookout,
            keeper=keeper,
            planned_bytes={name: found.planned_bytes for name, found in weights.items()},
            dropped=set(stored.dropped),
            decisions=decided,
            decided=set(done),
        ).run(left)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: the workers are stopped and the run can be resumed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- audit, compare, history ----


def audit_run(run_text: str, *, url: str | None, fail_on: Sequence[str], style: str, against: str | None) -> int:
    """`interlace audit`: judge what is stored, now."""
    from db.frames import resolve_run

    database = _open(url)
    run_id = resolve_run(database, run_text)
    plan = _stored_plan(database, run_id)
    code = _audit_and_show(database, plan, run_id, fail_on=fail_on, style=style)
    if against is not None and style == "table":
        _show_claims(database, plan, run_id, against)
    return code


def _audit_and_show(database: "Database", plan: Plan, run_id: str, *, fail_on: Sequence[str], style: str) -> int:
    from orchestrator.judging import judge_run
    from orchestrator.views.audit_view import show_audit

    judged = judge_run(database, plan, run_id)
    show_audit(judged.result, plan=plan, run_id=run_id, style=style, composition=judged.composition)
    found = {comparison.verdict for comparison in judged.result.comparisons if comparison.prompt_class is None}
    return EXIT_VERDICT if found & set(fail_on) else EXIT_DONE


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

    database = _open(url)
    run_ids = [resolve_run(database, text) for text in (first_text, second_text)]
    if run_ids[0] == run_ids[1]:
        raise InputError(f"{first_text} and {second_text} are the same run: name two, see `interlace status`")
    first, second = (run_side(database, _stored_plan(database, run_id), run_id) for run_id in run_ids)
    print_comparison(compare_runs(first, second), console())


def show_history(*, url: str | None, metric: str, simulated: bool, filters: Mapping[str, str | None]) -> None:
    """`interlace history`: every configuration that matches, over time."""
    from db.history import SERIES, VERSIONS, arm_history
    from orchestrator.judging import SHORT_HASH, explanations
    from orchestrator.statistics.history import Point, change_points
    from orchestrator.views.relation_view import print_explanations, print_history
    from orchestrator.views.terminal import console

    out = console()
    rows = arm_history(_open(url), metric=metric, filters=filters, simulated=simulated)
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


# ---- the database ----


def show_status(*, url: str | None, limit: int) -> None:
    """`interlace status`: the runs, newest first."""
    from db.frames import runs
    from orchestrator.views.status_view import print_status
    from orchestrator.views.terminal import console

    print_status(runs(_open(url), limit=limit), console())


def show_doctor(*, url: str | None, as_json: bool) -> int:
    """`interlace doctor`: look at this machine, change nothing."""
    from db.errors import DatabaseError
    from db.migrate import current
    from db.session import database_path, database_url
    from orchestrator.doctor import as_json as doctor_json
    from orchestrator.doctor import examine
    from orchestrator.running.readiness import journal_beside
    from orchestrator.views.doctor_view import print_diagnosis
    from orchestrator.views.terminal import console

    chosen = database_url(url)
    path = database_path(chosen)
    try:
        words = str(current(chosen))
    except DatabaseError as error:
        words = str(error)
    found = examine(database=path, database_words=words, journal=journal_beside(path))
    if as_json:
        sys.stdout.write(doctor_json(found))
    else:
        print_diagnosis(found, console())
    return RefusedError.exit_code if found.obstacles else EXIT_DONE


def query_database(sql: str, *, url: str | None, params: Sequence[str], style: str, output: str | None) -> None:
    """`interlace query`: read-only by construction."""
    from db.query import parse_parameters, run_query
    from db.render import write_result
    from db.session import database_url

    result = run_query(database_url(url), sql, parse_parameters(params))
    write_result(result, style=style, output=optional_path(output))


def check_database(*, url: str | None) -> int:
    """`interlace db check`."""
    from db.check import check
    from db.session import database_url

    found = check(database_url(url))
    sys.stdout.write(f"{found}\n")
    return EXIT_DONE if found.ok else RefusedError.exit_code


def upgrade_database(*, url: str | None) -> None:
    """`interlace db upgrade`."""
    from db.migrate import upgrade
    from db.session import database_url

    version = upgrade(database_url(url))
    sys.stdout.write(f"{version}\n")


def database_path(*, url: str | None) -> None:
    """`interlace db path`."""
    from db.session import database_path as path_of
    from db.session import database_url

    sys.stdout.write(f"{path_of(database_url(url))}\n")


def _open(url: str | None) -> "Database":
    from db.session import database_url, open_existing

    return open_existing(database_url(url))


def _stored_plan(database: "Database", run_id: str) -> Plan:
    from orchestrator.running.recorder import stored_plan

    try:
        return load(stored_plan(database, run_id))
    except ValueError as error:
        raise RefusedError(f"run {run_id}: {error}; use the interlace version that made it") from error
