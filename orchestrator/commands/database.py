"""`interlace db`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from db.escaping import shown, shown_line
from orchestrator.commands.opening import EXIT_DONE, optional_path
from orchestrator.errors import RefusedError

if TYPE_CHECKING:
    from db.transfer.merge import Merged
    from orchestrator.importers.source import Choices


def check_database(*, url: str | None) -> int:
    """`interlace db check`."""
    from db.check import check
    from db.session import database_url

    found = check(database_url(url))
    sys.stdout.write(f"{shown(str(found))}\n")
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


def backup_database(file: str | None, *, url: str | None, force: bool) -> None:
    """`interlace db backup`: a checked copy, while a run may be writing."""
    from db.session import database_url
    from db.transfer.backup import backup

    made = backup(database_url(url), optional_path(file), force=force)
    sys.stdout.write(f"{made.path}: {_size(made.size_bytes)}, schema {made.revision}, sound\n")


def export_run(run_text: str, *, url: str | None, output: str, force: bool) -> None:
    """`interlace db export`: one run as one file."""
    from db.frames import resolve_run
    from db.session import database_url, open_existing
    from db.transfer.run_file import export_run as export

    chosen = database_url(url)
    run_id = resolve_run(open_existing(chosen), run_text)
    made = export(chosen, run_id, Path(output), force=force)
    manifest = made.manifest
    sys.stdout.write(
        f"{made.path}: run {run_id} ({manifest.experiment}), {_count(manifest.trials, 'trial')},"
        f" {_size(made.path.stat().st_size)}\n"
        f"not included: {', '.join(manifest.not_included)}\n"
    )
    for name in manifest.redacted:
        sys.stdout.write(f"redacted: the value of {name}\n")


def merge_database(other: str, *, url: str | None) -> None:
    """`interlace db merge`: take another database's runs."""
    from db.session import database_url
    from db.transfer.merge import merge
    from orchestrator.plan import load

    _tell_merged(merge(database_url(url), Path(other), read_plan=load))


def import_file(file: str, *, url: str | None, choices: "Choices", dry_run: bool) -> None:
    """`interlace db import`: a run exported by interlace, or another tool's results."""
    from db.session import database_url
    from db.transfer.run_file import import_run, is_portable
    from orchestrator.commands.foreign import import_results
    from orchestrator.plan import load

    chosen = database_url(url)
    if is_portable(Path(file)):
        _tell_merged(import_run(chosen, Path(file), read_plan=load))
    else:
        import_results(chosen, Path(file), choices=choices, dry_run=dry_run)


def _tell_merged(merged: "Merged") -> None:
    for run_id in merged.runs:
        sys.stdout.write(f"run {run_id}\n")
    advanced = f" ({merged.runs_advanced} of them brought up to date)" if merged.runs_advanced else ""
    sys.stdout.write(
        f"{_count(merged.runs_new, 'run')} new, {merged.runs_known} already there{advanced};"
        f" {_count(merged.trials_new, 'trial')} new, {merged.trials_known} already there\n"
    )
    if merged.runs_new:
        sys.stdout.write("judge with `interlace audit RUN`; its plan is executed only by `interlace run --from RUN`\n")
    for note in merged.notes:
        sys.stdout.write(f"note: {shown_line(note)}\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
