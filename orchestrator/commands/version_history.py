"""The bisections that would prove what changed an arm's speed where a package moved that nobody declared."""

import shlex
from dataclasses import replace

from packaging.version import InvalidVersion, Version

from db.engine import Database
from orchestrator.errors import RefusedError
from orchestrator.statistics.history import Change, Moved, Series, undeclared_at
from orchestrator.stored_run import StoredRun
from orchestrator.vocabulary import DEFAULT_METRIC

MOST_PROOFS = 3


def with_proofs(database: Database, series: Series, metric: str) -> Series:
    """The series with the commands, ready to paste, that would prove which release made each of its changes.

    Args:
        metric: the metric whose level changed.
    """
    found = {change.after: _bisections(database, change, series, metric) for change in series.changes}
    return replace(series, proofs={run_id: commands for run_id, commands in found.items() if commands})


def _bisections(database: Database, change: Change, series: Series, metric: str) -> tuple[str, ...]:
    moved = undeclared_at(change, series.points)[:MOST_PROOFS]
    if not moved:
        return ()
    from orchestrator.configuration.asked import overrides_of  # loads Hydra: seldom needed

    try:
        plan = StoredRun.load(database, change.after).plan
    except RefusedError:
        return ()  # planned by another version
    planned = next((each for each in plan.arms if each.name == series.arm), None)
    if planned is None:
        return ()
    words = [*overrides_of(planned, plan), *([] if metric == DEFAULT_METRIC else [f"design.metric={metric}"])]
    return tuple(shlex.join(["interlace", "bisect", *_ends(each), *words]) for each in moved)


def _ends(moved: Moved) -> tuple[str, str, str]:
    """Package and releases, the older one first."""
    try:
        earlier, later = sorted((moved.before, moved.after), key=Version)
    except InvalidVersion:
        earlier, later = moved.before, moved.after
    return moved.package, earlier, later
