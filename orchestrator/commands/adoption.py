"""A stored plan that is not known to be the user's own: shown, and executed once the user agrees.

`interlace run --from RUN` makes a new run of it; `interlace resume RUN` goes on with the run itself.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from db.engine import Database
from db.escaping import shown_line
from db.session import database_url, open_existing
from orchestrator.commands.planned_run import Planned
from orchestrator.commands.stored_runs import named_run
from orchestrator.environments.provision import ready
from orchestrator.errors import InputError
from orchestrator.plan import Plan
from orchestrator.planning.disclosure import disclosure
from orchestrator.planning.fetching import pinned
from orchestrator.planning.weights import find_weights, refuse_what_does_not_fit
from orchestrator.running.preflight import warn
from orchestrator.running.provenance import agree, origin_in_words, plan_to_adopt, plan_to_agree_to
from orchestrator.running.stored import log_folder


def adopted(run_text: str, *, url: str | None, overrides: Sequence[str], agreed: bool) -> Planned:
    """The plan of a stored run, to be run here once the user agrees. Nothing in it is looked up before that.

    Raises:
        InputError: overrides beside it, or no agreement.
        NotOursError: another tool's results, or a plan that was changed since it was stored.
    """
    if overrides:
        raise InputError(f"run --from {run_text}: takes the plan as it is; leave out {overrides[0]!r}")
    chosen = database_url(url)
    database = open_existing(chosen)
    run_id = named_run(database, run_text)
    plan, origin = plan_to_adopt(database, run_id), origin_in_words(database, run_id)
    database.dispose()
    _show(plan, run_id, origin)
    _agree(f"run --from {run_id}", "Execute all of this here, as a new run?", agreed=agreed)
    plan = replace(plan, notes=(*plan.notes, f"the plan of run {run_id}, {origin}"))
    return _planned(plan, chosen)


def _planned(plan: Plan, url: str) -> Planned:
    weights = find_weights(plan)
    refuse_what_does_not_fit(plan)
    ready(plan, warn)
    return Planned(
        plan=plan, weights=weights, url=url, again=lambda: _planned(replace(plan, arms=pinned(plan.arms)), url)
    )


def agree_to_resume(database: Database, run_id: str, *, agreed: bool) -> None:
    """Require, before a run is resumed, that its plan is the user's own, or show it, ask, and remember the agreement.

    Raises:
        InputError: no agreement.
        NotOursError: see `provenance.plan_to_agree_to`.
        RefusedError: another version of interlace wrote it, or the list of plans cannot be used.
    """
    plan = plan_to_agree_to(database, run_id)
    if plan is None:
        return
    _show(plan, run_id, f"{origin_in_words(database, run_id)} (its logs go to {log_folder(database, run_id)})")
    _agree(f"resume {run_id}", "Execute all of this here?", agreed=agreed)
    agree(database, run_id)


def _show(plan: Plan, run_id: str, origin: str) -> None:
    sys.stdout.write(f"the plan of run {run_id}, {origin}, would execute on this machine:\n")
    for head, lines in disclosure(plan):
        sys.stdout.write(f"  {head}\n")
        sys.stdout.writelines(f"    {shown_line(line)}\n" for line in lines)
    sys.stdout.write(f"  prompts\n    {len(plan.prompts)}, sent to each of {len(plan.arms)} arms\n")
    sys.stdout.flush()


def _agree(command: str, question: str, *, agreed: bool) -> None:
    if agreed:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(
            f"{command}: needs your agreement to what it would execute, and there is no terminal to ask on;"
            " read the list above, then add --yes"
        )
    if not click.confirm(question, default=False):
        raise InputError(f"{command}: not agreed to; nothing was executed or stored")
