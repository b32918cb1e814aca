"""Finding a run by what a person types. Pure, and free of heavy imports."""

from collections.abc import Callable, Iterable, Sequence

from db.errors import RunNotFoundError

LAST = "last"
# Newest first, as `choose_run` takes them.
RUNS_SQL = (
    "SELECT run.id, experiment.name, run.status FROM run JOIN experiment"
    " ON experiment.id = run.experiment_id ORDER BY run.created_at DESC, run.id DESC"
)
# The same without those that came from elsewhere: id and status.
OWN_RUNS_SQL = "SELECT id, status FROM run WHERE arrived_at IS NULL ORDER BY created_at DESC, id DESC"
LEFT_UNFINISHED = frozenset(("running", "interrupted", "failed"))  # statuses; one that runs, if its process is gone
_CANDIDATES_SHOWN = 5


def choose_run(rows: Iterable[Sequence[object]], name: str) -> str:
    """The id of the run that a full id, a unique part of one, or `last` names. A matching start goes before the rest.

    Args:
        rows: id, experiment and status of every run, newest first: what `RUNS_SQL` gives.

    Raises:
        RunNotFoundError: none fits, or several; with the newest candidates.
    """
    wanted = name.strip().lower()
    known = {str(run_id): f"{run_id} ({experiment}, {status})" for run_id, experiment, status in rows}
    if not known:
        raise RunNotFoundError("no run is stored yet; start one with `interlace run`")
    if wanted == LAST:
        return next(iter(known))
    fitting = _fitting(list(known), wanted)
    if len(fitting) == 1:
        return fitting[0]
    shown = "; ".join(known[run_id] for run_id in (fitting or list(known))[:_CANDIDATES_SHOWN])
    if fitting:
        raise RunNotFoundError(f"run {name!r}: {len(fitting)} runs fit; write more of the id: {shown}")
    raise RunNotFoundError(f"run {name!r}: no run has this in its id; write `{LAST}` or one of {shown}")


def _fitting(ids: list[str], wanted: str) -> list[str]:
    """The ids that equal, else start with, else end with, else hold the text."""
    rules: Iterable[Callable[[str], bool]] = (
        lambda run_id: run_id == wanted,
        lambda run_id: run_id.startswith(wanted),
        lambda run_id: run_id.endswith(wanted),
        lambda run_id: wanted in run_id,
    )
    if not wanted:
        return ids
    return next((found for rule in rules if (found := [run_id for run_id in ids if rule(run_id)])), [])
