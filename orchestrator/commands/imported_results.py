"""`interlace db import` of another tool's results."""

import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from db.escaping import shown_line
from db.session import open_database
from orchestrator.importers.foreign_plan import make_plan
from orchestrator.importers.foreign_run import ForeignResults
from orchestrator.importers.source import Choices, Source, read_results
from orchestrator.importers.storage import store
from orchestrator.plan import Plan


def import_results(url: str, file: Path, *, choices: Choices, dry_run: bool) -> None:
    """Read a file, print its content and the assumptions, and store it unless it is stored or this is a dry run."""

    source, results = read_results(file, choices)
    plan = make_plan(
        results,
        experiment=choices.experiment or file.stem,
        source=source.name,
        interlace_version=version("interlace"),
        metric=choices.metric,
        control=choices.control,
    )
    _tell(source, results, plan, host=choices.host)
    if dry_run:
        sys.stdout.write("nothing stored (--dry-run)\n")
        return
    done = store(open_database(url), results, plan, source, host=choices.host)
    if done.known:
        sys.stdout.write(f"this file was already imported, as run {done.run_id}; nothing stored\n")
        return
    words = "its order was not randomised, so an audit cannot support a difference"
    sys.stdout.write(f"stored as run {done.run_id}: {words}\n")


def _tell(source: Source, results: ForeignResults, plan: Plan, *, host: str | None) -> None:
    tool = f" {results.tool_version}" if results.tool_version else ""
    machine = ", ".join(part for part in (host or "unknown host", results.machine.chip) if part)
    counts = Counter(trial.arm for trial in results.trials)
    failed = sum(trial.error is not None for trial in results.trials)
    lines = [
        f"{source.name}: {results.format}{tool}, {results.started_at:%Y-%m-%d %H:%M} UTC, {machine}",
        f"{_count(len(results.trials), 'trial')}{f', {failed} of them failed' if failed else ''};"
        f" an audit compares {plan.design.metric}",
    ]
    for arm in results.arms:
        role = "control" if arm.name == plan.control else "arm"
        lines.append(f"  {role} {arm.name}: {_count(counts[arm.name], 'trial')}")
    lines += [f"note: {note}" for note in results.notes]
    sys.stdout.write("\n".join(shown_line(line) for line in lines) + "\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
