"""What to know of a run before believing its audit: how it was ordered, whether it ended, which arms it lost."""

from collections.abc import Iterator

from sqlalchemy import Engine as Database
from sqlalchemy import select

from db.models import Arm, Run
from db.session import reading


def caveats(database: Database, run_id: str) -> tuple[str, ...]:
    """One line each, as `word: what`; none: a whole run of this program."""
    with reading(database) as session:
        run = session.get_one(Run, run_id)
        lost = session.execute(
            select(Arm.name, Arm.state_reason).where(Arm.run_id == run_id, Arm.state == "dropped").order_by(Arm.id)
        ).all()
    return (*_of_run(run), *(f"parked: {name} ({reason or 'no reason stored'})" for name, reason in lost))


def _of_run(run: Run) -> Iterator[str]:
    if not run.randomised:
        yield f"not randomised: results of {run.origin}; no test can tell an effect from drift"
    if run.status != "done":
        why = f" ({run.note})" if run.note else ""
        yield f"unfinished: the run is {run.status}{why}; this is what is stored so far"
