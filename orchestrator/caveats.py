"""What to know of a run before believing its audit: how it was ordered, whether it ended, which arms it lost."""

from collections.abc import Iterator

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Database
from db.models import Arm, Generation, Run, Trial
from db.session import read_only
from orchestrator.importers.plausibility import LEFT_OUT


def caveats(database: Database, run_id: str) -> tuple[str, ...]:
    """One line each, as `word: what`; none: a whole run of this program."""
    with read_only(database) as session:
        run = session.get_one(Run, run_id)
        lost = session.execute(
            select(Arm.name, Arm.state_reason).where(Arm.run_id == run_id, Arm.state == "dropped").order_by(Arm.id)
        ).all()
        untold = _caches_untold(session, run_id) if run.randomised else []
    return (
        *_of_run(run),
        *(f"parked: {name} ({reason or 'no reason stored'})" for name, reason in lost),
        *(
            f"caches unknown: {name} states no cached tokens, and the run repeats its prompts; times to the first"
            " token may be those of a warm cache (start the server without one to be sure)"
            for name in untold
        ),
    )


def _caches_untold(session: Session, run_id: str) -> list[str]:
    """Arms behind servers that never said how much of a first prompt came from a cache, unless none was asked for."""
    answered = (
        select(Arm.name, Arm.config)
        .join(Trial, Trial.arm_id == Arm.id)
        .join(Generation, Generation.trial_id == Trial.id)
        .where(Arm.run_id == run_id, Trial.kind == "measured", Generation.turn == 0, Generation.stamps_of == "chunk")
        .group_by(Arm.id)
        .having(func.count(Generation.cached_tokens) == 0, func.count(Trial.round_id.distinct()) > 1)
        .order_by(Arm.id)
    )
    return [name for name, config in session.execute(answered) if not _launched_without_cache(config.get("engine"))]


def _launched_without_cache(engine: object) -> bool:
    return isinstance(engine, dict) and engine.get("prefix_cache") is False and engine.get("attach") is None


def _of_run(run: Run) -> Iterator[str]:
    if not run.randomised:
        yield f"not randomised: results of {run.origin}; no test can tell an effect from drift"
        yield from (line for line in (run.note or "").splitlines() if line.startswith(LEFT_OUT))
    if run.status != "done":
        why = f" ({run.note})" if run.note else ""
        yield f"unfinished: the run is {run.status}{why}; this is what is stored so far"
