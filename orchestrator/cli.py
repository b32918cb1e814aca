"""The command line: the list of commands, and how each of them ends.

Each command is declared in a module of its own, `orchestrator.commands.cmd_NAME`, which loads when it is called. Until
then only its summary is known, so that `--help` costs what Click costs. For the same reason paths stay text here:
importing pathlib alone would cost a tenth of `--help`.

Exit codes: 0 done; 1 a verdict that `--fail-on` names; 2 bad input; 3 run incomplete (resumable); 4 environment
refused; 130 interrupted.
"""

import errno
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import click

from orchestrator.commands.completing import COMPLETE_VARIABLE
from orchestrator.commands.lazy_group import LazyGroup
from workers.machine.tool_folders import widened

EXIT_INPUT, EXIT_REFUSED, EXIT_INTERRUPTED = 2, 4, 130
_PLACE, _ROOM = "make it writable, or name another place", "make room on the disk, then try again"
_OTHER = "name another place"
_MISNAMED = frozenset((errno.EISDIR, errno.ENAMETOOLONG))  # bad input, whatever the disk is
_REFUSALS = {  # by the system, with the remedy
    **dict.fromkeys(_MISNAMED, _OTHER),
    errno.EACCES: _PLACE,
    errno.EPERM: _PLACE,
    errno.EROFS: _PLACE,
    errno.ENOTDIR: _PLACE,
    errno.ELOOP: _PLACE,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EIO: "the disk answered with an error; check it",
    errno.EMFILE: "raise the limit of open files: ulimit -n 4096",
}
_AGAIN_S = 0.01  # the callback has ended by then; if another has begun, the same happens again
# Most of what a command allocates are modules, which stay: looking for garbage in them is a tenth of a short command.
RARELY = (50_000, 20, 20)
SUMMARIES = {  # the first sentence of each command's help
    "audit": "Judge a run: which arm is really faster, and could it be drift?",
    "bisect": "Find the first release of PACKAGE between GOOD and BAD in which the speed changed.",
    "checkpoint": "Model weights: list, fetch, import, inspect, make.",
    "compare": "Compare two runs through the control that both contain.",
    "completion": "Print a shell's completion script: commands, options, overrides, runs, stored queries.",
    "db": "The database itself.",
    "doctor": "Show whether a run can start, and what this machine can run and record.",
    "engine": "Engines and their settings: list, show.",
    "environment": "Environments that arms declare: list, show, remove.",
    "explore": "Open the database in the browser, read-only, on this machine only.",
    "history": "Show each configuration over time, and what changed when its speed did.",
    "plan": "Show what would run: arms, rounds, order, memory, duration.",
    "query": "Ask the database, read-only: a stored query by its name, a file, or SQL.",
    "queue": "Runs that wait for this machine: add, list, cancel, move.",
    "report": "Write a run's report as one self-contained page: the verdict, and why.",
    "resume": "Finish an interrupted run.",
    "run": "Plan, run now, and audit at the end.",
    "simulate": "Try your design on a simulated machine: false positives, power, width.",
    "start": "Find a first plan by a few questions; it ends in the command line to keep.",
    "status": "Show what this machine measures and until when, what waits, and the last problems.",
    "work": "Execute the queued runs, one after the other.",
}
WORDS = {  # of other tools, and what to type here
    "list": "status` for runs, `checkpoint list` for models, or `engine list",
    "ls": "status` for runs, `checkpoint list` for models, or `engine list",
    "runs": "status",
    "logs": "status",
    "models": "checkpoint list",
    "fetch": "checkpoint fetch",
    "pull": "checkpoint fetch",
    "download": "checkpoint fetch",
    "engines": "engine list",
    "servers": "checkpoint list",
    "bench": "run",
    "benchmark": "run",
    "test": "run",
    "init": "start",
    "show": "audit",
    "results": "audit",
    "judge": "audit",
    "share": "report last -o report.html` for a page, or `db export last -o run.interlace",
    "export": "db export",
    "import": "db import",
    "delete": "db delete",
    "rm": "db delete",
    "rename": "db rename",
    "note": "db note",
    "tag": "db tag",
    "backup": "db backup",
    "sql": "query",
    "ui": "explore",
    "serve": "explore",
    "watch": "status --watch",
    "version": "--version",
    "help": "--help",
}
_EPILOG = """Exit codes: 0 done, 1 a verdict that --fail-on names, 2 bad input, 3 run
unfinished, 4 machine not fit now, 130 interrupted. Documentation: README.md and docs/."""


class _Interlace(LazyGroup):
    """Exits with 0 when the reader of its output closes the pipe: Click's own 1 would look like a verdict.

    Writes in any locale: characters that the output's encoding lacks are escaped.
    """

    def main(self, *arguments: Any, **settings: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        typed = arguments[0] if arguments else settings.pop("args", None)
        return super().main(_as_text(sys.argv[1:] if typed is None else typed), *arguments[1:], **settings)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **settings)
        except BrokenPipeError as error:  # of the help text; Click's own way would be 1
            raise click.exceptions.Exit(0) from error

    def invoke(self, context: click.Context) -> Any:
        try:
            code = super().invoke(context)
        except BrokenPipeError as error:
            if not _reader_is_gone():
                raise RuntimeError(f"a pipe broke: {error}") from error  # a child's: no end to be quiet about
            code = 0
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # discard the rest, else the interpreter reports an error at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code


def _as_text(typed: Sequence[str]) -> list[str]:
    """Decode the arguments as UTF-8, whatever the locale is; the name of an existing file stays as it is.

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
    looking.register(sys.stdout.fileno(), 0)  # errors are always reported
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in looking.poll(0))


@click.group(
    cls=_Interlace,
    package="orchestrator.commands",
    words=WORDS,
    summaries=SUMMARIES,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@click.version_option(package_name="interlace", message="%(package)s %(version)s")
def cli() -> None:
    """Which setting is really faster, and could the result be drift?

    OVERRIDES are Hydra's: a line that you would give to --multirun becomes the
    arms of one interleaved run, as in

      interlace run checkpoint=smollm2-8bit,smollm2-4bit workload=quick
    """


def _only_helps() -> bool:
    """Return whether the command prints a help text or the version, and does nothing else."""
    return bool({"-h", "--help", "--version"} & set(sys.argv))


def _keep_secrets() -> None:
    """Mask the secrets of this process's environment in everything that is printed, tracebacks included."""
    if _only_helps():
        return  # loads nothing and prints nothing of the user's
    from orchestrator.secrecy import guard
    from workers.masking import MaskingStream

    guard()
    sys.stdout, sys.stderr = MaskingStream(sys.stdout), MaskingStream(sys.stderr)


def _spinning() -> AbstractContextManager[object]:
    """A spinner on a terminal until the first output. None with --quiet: there it would turn while a run measures."""
    silent = _only_helps() or "--quiet" in sys.argv or COMPLETE_VARIABLE in os.environ
    if silent or not sys.stderr.isatty():
        return nullcontext()
    from orchestrator.views.spinner import EndingStream, Spinner

    spinner = Spinner(sys.stderr)
    sys.stdout, sys.stderr = EndingStream(sys.stdout, spinner), EndingStream(sys.stderr, spinner)
    return spinner


def _refused_by_system(error: Exception) -> str | None:
    """One line for a file or an output that the system does not let us write or read; None if the error is another."""
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    name = "the output" if error.filename is None and _only_helps() else error.filename
    if name is None:
        return None
    from db.escaping import shown

    return f"{shown(os.fsdecode(name))}: {error.strerror}; {_REFUSALS[error.errno]}"


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the command wherever it comes. In a finaliser or a weak reference's callback, Python prints the
    KeyboardInterrupt and drops it: a run would go on. Here it comes again, a moment later."""
    before = sys.unraisablehook

    def again(lost: "sys.UnraisableHookArgs") -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            before(lost)
            return
        import signal
        import threading

        main_thread = threading.main_thread().ident or 0
        threading.Timer(_AGAIN_S, signal.pthread_kill, (main_thread, signal.SIGINT)).start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _open_streams() -> None:
    """Give the command an output where the shell closed it (`>&-`): Python has None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123 - for the whole process


def _discard_unwritable() -> None:
    """Send what a stream holds and cannot write to nowhere: the interpreter would fail on it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main() -> None:
    """Entry point of the `interlace` command: one clear line and an exit code for everything that is expected."""
    gc.set_threshold(*RARELY)
    _open_streams()
    _keep_secrets()
    # Also for the programs that workers start by name, such as a server: a night may begin in cron or launchd.
    os.environ["PATH"] = widened(os.environ.get("PATH", os.defpath))
    try:
        with keeping_interrupts(), _spinning():
            code = cli.main(standalone_mode=False, prog_name="interlace", complete_var=COMPLETE_VARIABLE)
    except Exception as error:
        code = _complained(error)
        if code is None:
            raise
    except KeyboardInterrupt:
        code = _complain("interrupted", EXIT_INTERRUPTED)
    _discard_unwritable()
    sys.exit(code if isinstance(code, int) else 0)


def _complained(error: Exception) -> int | None:
    """Report an expected error in one line, and return its exit code; None: it is not an expected one."""
    if isinstance(error, click.ClickException):
        with suppress(OSError):
            error.show()
        return error.exit_code
    if isinstance(error, click.Abort):
        return _complain("interrupted", EXIT_INTERRUPTED)
    code = getattr(error, "exit_code", None)
    if code is None and isinstance(error, UnicodeError):
        return _complain(f"text that this locale cannot hold ({error}); set LC_ALL=C.UTF-8", EXIT_INPUT)
    if code is None and isinstance(error, FileNotFoundError) and _nowhere():
        return _complain("the current folder no longer exists; change to another one, as by `cd`", EXIT_INPUT)
    if code is None and (words := _refused_by_system(error)) is not None:
        return _complain(words, EXIT_INPUT if getattr(error, "errno", None) in _MISNAMED else EXIT_REFUSED)
    if code is None:
        return None
    from db.escaping import shown

    return _complain(shown(str(error)), int(code))


def _nowhere() -> bool:
    """Return whether the current folder was removed: Python then fails wherever a path is made absolute."""
    try:
        os.getcwd()  # noqa: PTH109 - see the module
    except FileNotFoundError:
        return True
    return False


def _complain(words: str, code: int) -> int:
    """A line on standard error, where that can be written."""
    with suppress(OSError):
        click.echo(f"interlace: {words}", err=True)
    return code
