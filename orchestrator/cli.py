"""The command line. Commands only: each loads what it needs when it is called, so that `--help` costs nothing.

Paths stay text here: importing pathlib alone would cost a tenth of `--help`.

Exit codes: 0 done; 1 a verdict that `--fail-on` names; 2 bad input; 3 run incomplete (resumable); 4 environment
refused; 130 interrupted.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

EXIT_INTERRUPTED = 130
VERDICTS = ("supported", "no_difference", "could_be_drift", "not_engaged", "confounded", "underpowered")

PROFILES = ("none", "linear", "saturating", "step", "random_walk", "bursts", "duty_cycle")
METRICS = ("end_to_end_tps", "decode_tps", "prefill_tps", "ttft_s")
FOREIGN_FORMATS = ("llama-bench", "mlx-chronos", "dflash-mlx", "guidellm", "vllm-bench", "llama-benchy")

Command = Callable[..., Any]


def _overrides(command: Command) -> Command:
    """The arguments of every command that composes a plan."""
    command = click.argument("overrides", nargs=-1, metavar="[OVERRIDES]...")(command)
    return click.option(
        "--config-dir",
        type=click.Path(exists=True, file_okay=False),
        help="A folder with your own groups: DIR/checkpoint/mine.yaml becomes checkpoint=mine.",
    )(command)


def _fail_on(command: Command) -> Command:
    return click.option(
        "--fail-on",
        multiple=True,
        type=click.Choice(VERDICTS),
        help="Exit with 1 when a comparison over all prompts has this verdict. Repeatable.",
    )(command)


def _db(command: Command) -> Command:
    return click.option(
        "--db", "url", metavar="URL", help="The database. Default: INTERLACE_DB, else your data folder."
    )(command)


_EPILOG = """Exit codes: 0 done, 1 a verdict that --fail-on names, 2 bad input, 3 run
unfinished, 4 machine not fit now, 130 interrupted. Documentation: README.md and docs/."""


class _Commands(click.Group):
    """Ends a command with 0 when whoever read its output has had enough: click's own 1 would look like a verdict.

    Says everything in any locale: what the output's encoding does not have is written as an escape.
    """

    def main(self, *arguments: Any, **settings: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        typed = arguments[0] if arguments else settings.pop("args", None)
        return super().main(_as_text(sys.argv[1:] if typed is None else typed), *arguments[1:], **settings)

    def invoke(self, context: click.Context) -> Any:
        try:
            code = super().invoke(context)
        except BrokenPipeError as error:
            if not _reader_is_gone():
                raise RuntimeError(f"a pipe broke: {error}") from error  # a child's: no end to be quiet about
            code = 0
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # what is left goes nowhere, else the interpreter complains at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code


def _as_text(typed: Sequence[str]) -> list[str]:
    """Arguments in UTF-8, whatever the locale says of their bytes; another file name that is there stays as it is.

    Raises:
        UsageError: bytes that are not UTF-8.
    """
    return [each if each.isascii() else _decoded(each, place) for place, each in enumerate(typed, start=1)]


def _decoded(text: str, place: int) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        if os.path.lexists(text):  # importing pathlib costs a tenth of `--help`
            return text
        raw = text.encode("utf-8", "surrogateescape")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"argument {place} is not UTF-8 text: {raw!r}; type it in UTF-8") from error
    return text


def _reader_is_gone() -> bool:
    import select

    looking = select.poll()
    looking.register(sys.stdout.fileno(), 0)  # errors are always told
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in looking.poll(0))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(package_name="interlace", message="%(package)s %(version)s")
def cli() -> None:
    """Which setting is really faster, and could the result be drift?

    OVERRIDES are Hydra's: a line that you would give to --multirun becomes the
    arms of one interleaved run, as in

      interlace run checkpoint=smollm2-8bit,smollm2-4bit workload=quick
    """


@cli.command()
@_overrides
@click.option("--json", "as_json", is_flag=True, help="The frozen plan as JSON.")
def plan(overrides: tuple[str, ...], config_dir: str | None, *, as_json: bool) -> None:
    """Show what would run: arms, rounds, order, memory, duration. Runs nothing."""
    from orchestrator.commands.plan import show_plan

    show_plan(overrides, config_dir=config_dir, as_json=as_json)


@cli.command()
@_overrides
@click.option("--profile", "profiles", multiple=True, type=click.Choice(PROFILES), help="Repeatable. Default: all.")
@click.option("--effect", default="5%", show_default=True, help="The treatment's true effect.")
@click.option("--noise", default="1%", show_default=True, help="Scale of the trials' own noise.")
@click.option("--drift", metavar="SIZE", help="Over the run, as -34%. Default: each profile's own size.")
@click.option("--runs", default=1000, show_default=True, type=click.IntRange(50, 20000), help="Simulated runs each.")
@click.option(
    "--heat",
    metavar="ARM=SIZE",
    multiple=True,
    help="By how much many trials of an arm in a row would slow the next one, as B=5%. Repeatable. Plans a cooldown.",
)
@click.option("--decay", default=0.8, show_default=True, help="Share of the heat that is left one trial later.")
def simulate(overrides: tuple[str, ...], config_dir: str | None, **wanted: Any) -> None:
    """Try your design on a simulated machine: false positives, power, width.

    Arms, rounds and level are those of the plan that OVERRIDES describe.
    """
    from orchestrator.commands.plan import simulate_design

    simulate_design(overrides, config_dir=config_dir, **wanted)


@cli.command()
@_overrides
@_fail_on
@click.option("--quiet", is_flag=True, help="No progress; the audit only.")
@click.option(
    "--from", "from_run", metavar="RUN", help="Run the plan of a stored run anew, after showing what it executes."
)
@click.option("--yes", "agreed", is_flag=True, help="With --from: agree to what the plan executes.")
@click.option("--db", "url", metavar="URL", help="With --from: the database that holds RUN and takes the new run.")
def run(
    overrides: tuple[str, ...],
    config_dir: str | None,
    fail_on: tuple[str, ...],
    from_run: str | None,
    url: str | None,
    *,
    agreed: bool,
    quiet: bool,
) -> int:
    """Plan, run now, and audit at the end.

    With --from RUN: take the plan of a stored run instead of OVERRIDES, such as one that came by `db import`. All that
    it would execute is shown, and it runs as a new run once you agree.
    """
    from orchestrator.commands.run import run_from, run_now

    if from_run is not None:
        return run_from(from_run, overrides=overrides, url=url, agreed=agreed, fail_on=fail_on, quiet=quiet)
    if agreed or url is not None:
        raise click.UsageError("--yes and --db belong to --from RUN; without it the database is INTERLACE_DB")
    return run_now(overrides, config_dir=config_dir, fail_on=fail_on, quiet=quiet)


@cli.command()
@click.argument("run_text", metavar="[RUN]", default="last")
@_db
@_fail_on
@click.option("--quiet", is_flag=True, help="No progress; the audit only.")
def resume(run_text: str, url: str | None, fail_on: tuple[str, ...], *, quiet: bool) -> int:
    """Finish an interrupted run. RUN is an id or a unique part of one.

    Without it, or with `last`: the newest run that was interrupted or failed.
    """
    from orchestrator.commands.run import resume_run

    return resume_run(run_text, url=url, fail_on=fail_on, quiet=quiet)


@cli.command()
@click.argument("run_text", metavar="RUN", default="last")
@_db
@_fail_on
@click.option("--format", "style", type=click.Choice(["table", "json", "markdown"]), default="table")
@click.option("--against", metavar="CLAIMS", help="Set results beside published figures: `claims` for all, or names.")
def audit(run_text: str, url: str | None, fail_on: tuple[str, ...], style: str, against: str | None) -> int:
    """Judge a run: which arm is really faster, and could it be drift?"""
    from orchestrator.commands.audit import audit_run

    return audit_run(run_text, url=url, fail_on=fail_on, style=style, against=against)


@cli.command()
@click.argument("run_text", metavar="RUN", default="last")
@_db
@click.option("-o", "--output", required=True, metavar="FILE.html", help="The page to write.")
@click.option("--images", metavar="DIR", help="Also write each chart as PNG and SVG.")
@click.option("--markdown", metavar="FILE.md", help="Also write the report as Markdown, for an issue or a blog.")
def report(run_text: str, url: str | None, output: str, images: str | None, markdown: str | None) -> None:
    """Write a run as one self-contained page: the verdict, and why.

    It works offline and holds no script. RUN is an id, a unique part of one, or `last`.
    """
    from orchestrator.commands.report import report_run

    report_run(run_text, url=url, output=output, images=images, markdown=markdown)


@cli.command()
@click.argument("run_a", metavar="RUN_A")
@click.argument("run_b", metavar="RUN_B")
@_db
def compare(run_a: str, run_b: str, url: str | None) -> None:
    """Relate two runs through the control that both of them held."""
    from orchestrator.commands.audit import compare_two

    compare_two(run_a, run_b, url=url)


@cli.command()
@_db
@click.option("--metric", type=click.Choice(METRICS), default=METRICS[0], show_default=True)
@click.option("--arm", help="Arms whose name matches this SQL pattern, such as '%draft%'.")
@click.option("--engine", help="Arms of this engine.")
@click.option("--checkpoint", help="Arms of this checkpoint.")
@click.option("--experiment", help="Runs of this experiment.")
@click.option("--simulated", is_flag=True, help="Simulated runs instead of real ones.")
def history(url: str | None, metric: str, *, simulated: bool, **filters: str | None) -> None:
    """Show each configuration over time, and what changed when its speed did."""
    from orchestrator.commands.audit import show_history

    show_history(url=url, metric=metric, simulated=simulated, filters=filters)


@cli.group()
def queue() -> None:
    """Runs that wait for this machine: add, list, cancel, move."""


@queue.command("add")
@_overrides
def queue_add(overrides: tuple[str, ...], config_dir: str | None) -> None:
    """Freeze a plan and let it wait, with its weights found and its memory checked."""
    from orchestrator.commands.queue import add_to_queue

    add_to_queue(overrides, config_dir=config_dir)


@queue.command("list")
@_db
def queue_list(url: str | None) -> None:
    """List what waits, how long each takes, and when all of it ends."""
    from orchestrator.commands.queue import list_queue

    list_queue(url=url)


@queue.command("cancel")
@click.argument("run_text", metavar="ID")
@_db
def queue_cancel(run_text: str, url: str | None) -> None:
    """Take a run out of the queue. ID is a unique part of its id."""
    from orchestrator.commands.queue import cancel_entry

    cancel_entry(run_text, url=url)


@queue.command("move")
@click.argument("run_text", metavar="ID")
@click.option("--before", metavar="ID", help="To the place before this one.")
@click.option("--first", is_flag=True, help="To the front.")
@click.option("--last", is_flag=True, help="To the end.")
@_db
def queue_move(run_text: str, before: str | None, url: str | None, *, first: bool, last: bool) -> None:
    """Move a run within the queue. ID is a unique part of its id."""
    from orchestrator.commands.queue import move_entry

    move_entry(run_text, before=before, first=first, last=last, url=url)


@cli.command()
@_db
@click.option("--until", metavar="TIME", help="Finish the round under way at this time of day, as 07:00, then stop.")
@click.option("--preflight/--no-preflight", default=True, help="Try every arm of every run first. Default: yes.")
@click.option("--quiet", is_flag=True, help="Only how each run ended.")
def work(url: str | None, until: str | None, *, preflight: bool, quiet: bool) -> int:
    """Run what waits in the queue, one run after the other.

    Exit code 3 when something is left or failed; the next `work` goes on.
    """
    from orchestrator.commands.queue import work as work_now

    return work_now(until=until, preflight=preflight, url=url, quiet=quiet)


@cli.command()
@_db
@click.option("--limit", default=20, show_default=True, help="How many runs, newest first.")
@click.option("--watch", is_flag=True, help="Follow the run that runs until it ends; Ctrl-C stops watching only.")
def status(url: str | None, limit: int, *, watch: bool) -> None:
    """Show who measures, what runs and until when, what waits, and the last problems."""
    from orchestrator.commands.machine import show_status

    show_status(url=url, limit=limit, live=watch)


@cli.command()
@click.argument("asked", metavar="[NAME|FILE.sql|SQL]", required=False)
@_db
@click.option("--list", "listing", is_flag=True, help="List the stored queries.")
@click.option("--show", is_flag=True, help="Print the query instead of running it.")
@click.option("--describe", "described", metavar="VIEW", help="Print what the columns of a view or table mean.")
@click.option("--file", "file", metavar="FILE", type=click.Path(dir_okay=False), help="A query in a file of any name.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Value of :NAME in the SQL. Repeatable.")
@click.option("--format", "style", type=click.Choice(["table", "csv", "json", "markdown", "parquet"]), default="table")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write to a file.")
def query(
    asked: str | None, url: str | None, described: str | None, *, listing: bool, show: bool, **wanted: Any
) -> None:
    """Ask the database, read-only: a stored query by its name, a file, or SQL.

    \b
      interlace query --list
      interlace query speed --param run=last
      interlace query "SELECT arm, avg(decode_tps) FROM trial_flat GROUP BY arm"

    :run in a query is the newest run unless --param names another. Views: trial_flat (one row a generation) and
    verdict_flat (one row a comparison).
    """
    from orchestrator.commands.query import describe_view, list_queries, query_database, show_query

    if listing:
        list_queries(url=url)
    elif described is not None:
        describe_view(described, url=url)
    elif show:
        show_query(asked, file=wanted["file"], url=url)
    else:
        query_database(asked, url=url, **wanted)


@cli.command()
@_db
@click.option("--port", type=click.IntRange(0, 65535), help="Default: 8341, or a free one if it is taken.")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
def explore(url: str | None, port: int | None, *, no_browser: bool) -> None:
    """Open the database in the browser, read-only, on this machine only."""
    from orchestrator.commands.explore import explore_database

    explore_database(url=url, port=port, open_browser=not no_browser)


@cli.command()
@_db
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def doctor(url: str | None, *, as_json: bool) -> int:
    """Show what this machine can run and record, and why a reading is missing.

    Exit code 4 when a run would be refused now.
    """
    from orchestrator.commands.machine import show_doctor

    return show_doctor(url=url, as_json=as_json)


@cli.group()
def db() -> None:
    """The database itself."""


@db.command("path")
@_db
def db_path(url: str | None) -> None:
    """Print where the database is."""
    from orchestrator.commands.database import database_path

    database_path(url=url)


@db.command("check")
@_db
def db_check(url: str | None) -> int:
    """Check version, integrity and foreign keys."""
    from orchestrator.commands.database import check_database

    return check_database(url=url)


@db.command("upgrade")
@_db
def db_upgrade(url: str | None) -> None:
    """Bring the tables up to this version."""
    from orchestrator.commands.database import upgrade_database

    upgrade_database(url=url)


@db.command("backup")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@_db
@click.option("--force", is_flag=True, help="Replace FILE where it exists.")
def db_backup(file: str | None, url: str | None, *, force: bool) -> None:
    """Copy the whole database to FILE, while a run may be writing it.

    Without FILE the copy lies beside the database, with the time in its name.
    """
    from orchestrator.commands.database import backup_database

    backup_database(file, url=url, force=force)


@db.command("export")
@click.argument("run_text", metavar="RUN", default="last")
@_db
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The file to write.")
@click.option("--force", is_flag=True, help="Replace the file where it exists.")
def db_export(run_text: str, url: str | None, output: str, *, force: bool) -> None:
    """Write one run as one portable file, without its logs and without secrets."""
    from orchestrator.commands.database import export_run

    export_run(run_text, url=url, output=output, force=force)


@db.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@_db
@click.option("--format", "format_", type=click.Choice(("auto", *FOREIGN_FORMATS)), default="auto", show_default=True)
@click.option("--timezone", metavar="NAME", help="Of times without a zone, as Europe/Berlin. Default: this machine's.")
@click.option("--host", metavar="NAME", help="The machine that it was measured on. Default: unknown.")
@click.option("--experiment", metavar="NAME", help="Default: the file's name.")
@click.option("--metric", type=click.Choice(METRICS), help="What an audit compares. Default: what most arms have.")
@click.option("--control", metavar="ARM", help="The arm that others are compared with. Default: the file's first.")
@click.option("--dry-run", is_flag=True, help="Say what would be stored; store nothing.")
def db_import(file: str, url: str | None, format_: str, *, dry_run: bool, **choices: str | None) -> None:
    """Take in a run that `db export` wrote, or another tool's results.

    Other tools' results are stored as runs that were not randomised.
    """
    from orchestrator.commands.database import import_file
    from orchestrator.importers.source import Choices

    import_file(file, url=url, choices=Choices(format=format_, **choices), dry_run=dry_run)


@db.command("merge")
@click.argument("other", type=click.Path(dir_okay=False))
@_db
def db_merge(other: str, url: str | None) -> None:
    """Take the runs of another database into this one. OTHER is only read."""
    from orchestrator.commands.database import merge_database

    merge_database(other, url=url)


@cli.group()
def checkpoint() -> None:
    """Model weights: list, import, inspect, make."""


@checkpoint.command("list")
@click.option("--config-dir", type=click.Path(exists=True, file_okay=False))
def checkpoint_list(config_dir: str | None) -> None:
    """List the checkpoints that can be named, and whether they are on this machine."""
    from orchestrator.commands.checkpoint import list_checkpoints

    list_checkpoints(config_dir=config_dir)


@checkpoint.command("import")
@click.argument("source", metavar="smollm2|smollm2-f32|FILE.gguf")
@click.option("--name", help="GGUF: the name to give it. Default: the file's.")
@click.option("--bits", type=click.Choice(["4", "8"]), help="GGUF: quantise to this. Default: not at all.")
def checkpoint_import(source: str, name: str | None, bits: str | None) -> None:
    """Import a model: `smollm2` (a small real one, one download; -f32: unquantised), or a GGUF file."""
    from orchestrator.commands.checkpoint import import_checkpoint

    import_checkpoint(source, name=name, bits=None if bits is None else int(bits))


@checkpoint.command("make")
@click.argument("source", metavar="CHECKPOINT|FOLDER")
@click.option("--name", help="The name to give it. Default: the source's, with the bits.")
@click.option("--bits", type=click.IntRange(2, 8), help="Quantise to this.")
@click.option("--group-size", type=click.Choice(["32", "64", "128"]), default="64", show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Of activations and scales.")
@click.option("--config-dir", type=click.Path(exists=True, file_okay=False))
def checkpoint_make(
    source: str, name: str | None, bits: int | None, group_size: str, dtype: str | None, config_dir: str | None
) -> None:
    """Make a checkpoint of an unquantised one: other bits, groups, or dtype."""
    from orchestrator.commands.checkpoint import make_checkpoint

    make_checkpoint(source, name=name, bits=bits, group_size=int(group_size), dtype=dtype, config_dir=config_dir)


@checkpoint.command("inspect")
@click.argument("name")
@click.option("--config-dir", type=click.Path(exists=True, file_okay=False))
def checkpoint_inspect(name: str, config_dir: str | None) -> None:
    """Print a checkpoint's shape, bytes and digest. NAME is a configuration's or a folder."""
    from orchestrator.commands.checkpoint import inspect_checkpoint

    inspect_checkpoint(name, config_dir=config_dir)


def _keep_secrets() -> None:
    """Nothing that is printed, a traceback included, shows a secret of this process's environment."""
    if {"-h", "--help", "--version"} & set(sys.argv):
        return  # loads nothing and says nothing of anybody's
    from orchestrator.secrecy import guard
    from workers.masking import MaskingStream

    guard()
    sys.stdout, sys.stderr = MaskingStream(sys.stdout), MaskingStream(sys.stderr)


def main() -> None:
    """Entry point of the `interlace` command: one clear line and an exit code for everything that is expected."""
    _keep_secrets()
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interlace: interrupted", err=True)
        code = EXIT_INTERRUPTED
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None and isinstance(error, UnicodeError):
            click.echo(f"interlace: text that this locale cannot hold ({error}); set LC_ALL=C.UTF-8", err=True)
            sys.exit(2)
        if code is None:
            raise
        from db.escaping import shown

        click.echo(f"interlace: {shown(str(error))}", err=True)
    sys.exit(code if isinstance(code, int) else 0)
