"""`interlace doctor`."""

import sys
from pathlib import Path

import click

from orchestrator.commands import options
from orchestrator.errors import InputError, RefusedError

MOST_REPORT_BYTES = 8 * 2**20


@click.command("doctor")
@options.db
@click.option("--all", "in_full", is_flag=True, help="Every reading, version and condition, with reasons and remedies.")
@click.option("--json", "as_json", is_flag=True, help="All values, for programs.")
@click.option(
    "--selftest",
    is_flag=True,
    help="Compare the readings with second sources and run a tiny model: two minutes, no root.",
)
@click.option(
    "-o",
    "--output",
    type=options.FILE,
    help="With --selftest: write the report to this file; it holds nothing personal.",
)
@click.option("--replay", "report", type=options.FILE, help="Show another machine's report.")
def command(
    url: str | None, *, in_full: bool, as_json: bool, selftest: bool, output: Path | None, report: Path | None
) -> int:
    """Show whether a run can start, and what this machine can run and record.

    Exit code 4 when a run would be refused now.
    """
    if output is not None and not selftest:
        raise InputError("--output writes the report of --selftest: add --selftest, or leave --output out")
    if selftest or report is not None:
        _report(output=output, replayed=report, as_json=as_json)
        return 0
    from db.errors import DatabaseError
    from db.migrate import current
    from db.session import database_path, database_url
    from orchestrator.doctor import as_json as doctor_json
    from orchestrator.doctor import examine
    from orchestrator.running.leftovers import journal_beside
    from orchestrator.state_folder import state_folder
    from orchestrator.views.doctor_summary import print_summary
    from orchestrator.views.doctor_view import print_diagnosis
    from orchestrator.views.terminal import console

    chosen = database_url(url)
    path = database_path(chosen)
    problem = ""
    try:
        words = str(current(chosen))
    except DatabaseError as error:
        words = problem = str(error)
    found = examine(
        database=path, database_words=words, journal=journal_beside(path), state=state_folder(), problem=problem
    )
    if as_json:
        sys.stdout.write(doctor_json(found))
    elif in_full:
        print_diagnosis(found, console())
    else:
        print_summary(found, console())
    return RefusedError.exit_code if found.obstacles else 0


def _report(*, output: Path | None, replayed: Path | None, as_json: bool) -> None:
    """Make this machine's report, or read another one's, and show it."""
    from orchestrator.selftest import as_json as report_json
    from orchestrator.selftest import replay, self_test
    from orchestrator.views.selftest_view import print_report
    from orchestrator.views.terminal import console
    from workers.files.atomic import write_file

    if output is not None and not output.absolute().parent.is_dir():  # before two minutes of work
        raise InputError(f"-o {output}: no such folder; create it, or name another file")
    if replayed is not None:
        found = replay(_text_of(replayed))
    else:
        found = self_test(lambda step: click.echo(f"testing  {step}", err=True))
    if output is not None:
        write_file(output, report_json(found).encode())
    if as_json:
        sys.stdout.write(report_json(found))
    else:
        print_report(found, console())


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_REPORT_BYTES:
            raise InputError(f"{path} has more than {MOST_REPORT_BYTES // 2**20} MiB: it is not a report of --selftest")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a report of --selftest: it is not UTF-8") from error
