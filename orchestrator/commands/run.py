"""`interlace run` and `interlace resume`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.commands.audit import audit_and_show
from orchestrator.commands.opening import open_stored, optional_path, plan_of_run
from orchestrator.running.execute import carry_out, check_machine

if TYPE_CHECKING:
    from orchestrator.running.recorder import Recorder


def run_now(overrides: Sequence[str], *, config_dir: str | None, fail_on: Sequence[str], quiet: bool) -> int:
    """`interlace run`: plan, look at the machine, store the plan, run it, audit it."""
    from db.session import database_path, database_url, open_database
    from orchestrator.configuration.compose import make_plan
    from orchestrator.running.making import create_run
    from orchestrator.running.preparation import find_weights, refuse_what_does_not_fit
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
    from orchestrator.running.elsewhere import refuse_from_elsewhere
    from orchestrator.running.making import reopen_run
    from orchestrator.running.preparation import find_weights
    from orchestrator.running.stored import refuse_if_held, refuse_other_weights
    from workers.host import read_host

    database = open_stored(url)
    run_id = resolve_run(database, run_text)
    refuse_from_elsewhere(database, run_id, read_host())
    plan = plan_of_run(database, run_id)
    recorder = reopen_run(database, plan, run_id)
    refuse_if_held(database, run_id)
    refuse_other_weights(database, run_id, find_weights(plan))
    check_machine(plan, Path(database.url.database or "."))
    return _execute(recorder, fail_on=fail_on, quiet=quiet)


def _execute(recorder: "Recorder", *, fail_on: Sequence[str], quiet: bool) -> int:
    """Run what is left and judge it. However it ends, the run's state says so."""
    from orchestrator.running.observing import SilentObserver
    from orchestrator.views.terminal import ProgressObserver, console

    out = console()
    run_id = recorder.run_id
    if not quiet:
        out.print(f"run {run_id}")
    with SilentObserver() if quiet else ProgressObserver(out) as observer:
        try:
            carry_out(recorder, observer=observer)
        except KeyboardInterrupt:
            out.print(f"interrupted; what is finished is stored. Go on with: interlace resume {run_id}")
            raise
    return audit_and_show(recorder.database, recorder.plan, run_id, fail_on=fail_on, style="table")
