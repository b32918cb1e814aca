"""`interlace db`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands import completing, options
from orchestrator.errors import RefusedError
from orchestrator.vocabulary import IMPORT_FORMATS

if TYPE_CHECKING:
    from db.transfer.merge import Merged


@click.group("db")
def command() -> None:
    """The database itself."""


@command.command("path")
@options.db
def path(url: str | None) -> None:
    """Print where the database is."""
    from db.location import database_path, database_url

    sys.stdout.write(f"{database_path(database_url(url))}\n")


@command.command("check")
@options.db
def check(url: str | None) -> int:
    """Check version, integrity and foreign keys."""
    from db.check import check as check_database
    from db.escaping import shown
    from db.session import database_url

    found = check_database(database_url(url))
    sys.stdout.write(f"{shown(str(found))}\n")
    return 0 if found.ok else RefusedError.exit_code


@command.command("upgrade")
@options.db
def upgrade(url: str | None) -> None:
    """Bring the tables up to this version."""
    from db.migrate import upgrade as upgrade_database
    from db.session import database_url

    version = upgrade_database(database_url(url))
    sys.stdout.write(f"{version}\n")


@command.command("backup")
@click.argument("file", required=False, type=options.FILE)
@options.db
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def backup(file: Path | None, url: str | None, *, force: bool) -> None:
    """Copy the whole database to FILE, even while a run writes to it.

    Without FILE the copy lies beside the database, with the time in its name.
    """
    from db.session import database_url
    from db.transfer.backup import backup as backup_database

    made = backup_database(database_url(url), file, force=force)
    sys.stdout.write(f"{made.path}: {_size(made.size_bytes)}, schema {made.revision}, sound\n")


@command.command("export")
@click.argument("run_text", shell_complete=completing.runs, metavar="RUN", default="last")
@options.db
@click.option("-o", "--output", required=True, type=options.FILE, help="The file to write.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def export(run_text: str, url: str | None, output: Path, *, force: bool) -> None:
    """Write one run as one portable file, without its logs and without secrets."""
    from db.frames import resolve_run
    from db.session import database_url, open_existing
    from db.transfer.run_file import export_run

    chosen = database_url(url)
    run_id = resolve_run(open_existing(chosen), run_text)
    made = export_run(chosen, run_id, output, force=force)
    manifest = made.manifest
    sys.stdout.write(
        f"{made.path}: run {run_id} ({manifest.experiment}), {_count(manifest.trials, 'trial')},"
        f" {_size(made.path.stat().st_size)}\n"
        f"not included: {', '.join(manifest.not_included)}\n"
    )
    for name in manifest.redacted:
        sys.stdout.write(f"redacted: the value of {name}\n")


@command.command("import")
@click.argument("file", type=options.FILE)
@options.db
@click.option("--format", type=click.Choice(("auto", *IMPORT_FORMATS)), default="auto", show_default=True)
@click.option(
    "--timezone", metavar="NAME", help="Zone of times without one, such as Europe/Berlin. Default: this machine's."
)
@click.option("--host", metavar="NAME", help="The machine that it was measured on. Default: unknown.")
@click.option("--experiment", metavar="NAME", help="Default: the file's name.")
@options.metric(help="Metric that an audit compares. Default: the one that most arms have.")
@click.option("--control", metavar="ARM", help="The arm that others are compared with. Default: the file's first.")
@click.option("--dry-run", is_flag=True, help="Print what would be stored; store nothing.")
def import_(file: Path, url: str | None, *, dry_run: bool, **choices: str) -> None:
    """Import a run that `db export` wrote, or another tool's results.

    Other tools' results are stored as runs that were not randomised.
    """
    from db.session import database_url
    from db.transfer.run_file import import_run, is_portable
    from orchestrator.commands.imported_results import import_results
    from orchestrator.importers.source import Choices
    from orchestrator.plan import load

    chosen = database_url(url)
    if is_portable(file):
        _tell_merged(import_run(chosen, file, read_plan=load))
    else:
        import_results(chosen, file, choices=Choices(**choices), dry_run=dry_run)


@command.command("merge")
@click.argument("other", type=options.FILE)
@options.db
def merge(other: Path, url: str | None) -> None:
    """Copy the runs of another database into this one. OTHER is only read."""
    from db.session import database_url
    from db.transfer.merge import merge as merge_database
    from orchestrator.plan import load

    _tell_merged(merge_database(database_url(url), other, read_plan=load))


@command.command("delete")
@click.argument("run_texts", metavar="RUN...", nargs=-1, required=True, shell_complete=completing.runs)
@options.db
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option("--yes", "agreed", is_flag=True, help="Agree, where there is no terminal to ask on.")
def delete(run_texts: tuple[str, ...], url: str | None, *, dry_run: bool, agreed: bool) -> None:
    """Delete runs with all that belongs to them, and their logs, once you have seen what goes.

    RUN is an id or a unique part of one. A run that is being run, or that waits in the queue, is refused.
    """
    from orchestrator.commands.upkeep import delete as delete_runs

    delete_runs(run_texts, url=url, agreed=agreed, dry_run=dry_run)


@command.command("rename")
@click.argument("run_text", metavar="RUN", shell_complete=completing.runs)
@click.argument("name", metavar="EXPERIMENT")
@options.db
def rename(run_text: str, name: str, url: str | None) -> None:
    """Move a run to the experiment of another name, which is made if need be."""
    from orchestrator.commands.upkeep import rename as rename_run

    rename_run(run_text, name, url=url)


@command.command("note")
@click.argument("run_text", metavar="RUN", shell_complete=completing.runs)
@click.argument("words", metavar="[TEXT]", required=False)
@options.db
def note(run_text: str, words: str | None, url: str | None) -> None:
    """Say something about a run, in one line: lists, reports and the history show it.

    TEXT replaces an earlier note; '' removes it. Without TEXT the note and the tags are shown.
    """
    from orchestrator.commands.run_remarks import note as note_run

    note_run(run_text, words, url=url)


@command.command("tag")
@click.argument("run_text", metavar="RUN", shell_complete=completing.runs)
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@options.db
@click.option("--remove", metavar="TAG", multiple=True, help="Take a tag away. Repeatable.")
def tag(run_text: str, tags: tuple[str, ...], url: str | None, remove: tuple[str, ...]) -> None:
    """Give a run tags, by which lists and queries find it. Without a TAG the note and the tags are shown."""
    from orchestrator.commands.run_remarks import tag as tag_run

    tag_run(run_text, tags, remove=remove, url=url)


@command.command("prune")
@options.db
@click.option(
    "--older-than", "days", type=click.FloatRange(min=0), default=0.0, metavar="DAYS", help="Only older ones."
)
@click.option("--simulated", is_flag=True, help="Simulated runs instead, whatever became of them.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option("--yes", "agreed", is_flag=True, help="Agree, where there is no terminal to ask on.")
def prune(url: str | None, days: float, *, simulated: bool, dry_run: bool, agreed: bool) -> None:
    """Delete runs that failed, were interrupted or cancelled without one generation, once you have seen them."""
    from orchestrator.commands.upkeep import prune as prune_runs

    prune_runs(url=url, older_than_days=days, simulated=simulated, agreed=agreed, dry_run=dry_run)


def _tell_merged(merged: "Merged") -> None:
    from db.escaping import shown_line

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
