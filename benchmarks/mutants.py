"""Small wrong changes, one at a time: which of them do a module's own tests notice? The table of docs/design/tests.md.

    python benchmarks/mutants.py [--sample N] [--seed N] [--fast] [--hand-made] [--tests PATHS] [MODULE ...]

Each module in `TESTS` is changed in a copy of the project: a comparison is moved to its boundary or reversed, `and`
becomes `or`, a constant is changed, a `not` or a statement is left out, None is returned. After each change the
module's tests run in a forked process that stops at the first failure; a module whose tests still pass has a mutant
that survived, and it is printed. --hand-made: the changes of hand_made_mutants.toml instead. No module: all of them.
A sample of 40 per module takes about a minute of CPU each.
"""

import argparse
import ast
import contextlib
import copy
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HAND_MADE = Path(__file__).with_name("hand_made_mutants.toml")
# The pure core and the modules around it: the tests that answer for each.
_SERVED = (
    "tests/workers/engines/test_server_reading.py",
    "tests/workers/engines/test_openai_http.py",
    "tests/workers/engines/test_lying_server.py",
)
_CATALOGUE = ("tests/workers/catalogue",)
_STATISTICS = "tests/orchestrator/statistics"
_RUNNING = "tests/orchestrator/running"
TESTS: dict[str, tuple[str, ...]] = {
    "orchestrator/effects.py": ("tests/orchestrator/test_effects.py", "tests/orchestrator/test_williams.py"),
    "orchestrator/schedule.py": ("tests/orchestrator/test_schedule.py", "tests/orchestrator/test_williams.py"),
    "orchestrator/estimation/inversion.py": ("tests/orchestrator/test_effects.py",),
    "orchestrator/estimation/levels.py": ("tests/orchestrator/test_effects.py",),
    "orchestrator/statistics/family.py": (f"{_STATISTICS}/test_family.py",),
    "orchestrator/statistics/sequential.py": (f"{_STATISTICS}/test_sequential.py",),
    "orchestrator/statistics/carry_over.py": (f"{_STATISTICS}/test_carry_over.py",),
    "orchestrator/statistics/lags.py": (f"{_STATISTICS}/test_carry_over.py", f"{_STATISTICS}/test_heat.py"),
    "orchestrator/statistics/comparability.py": (
        f"{_STATISTICS}/test_comparability.py",
        f"{_STATISTICS}/test_uncached.py",
    ),
    "orchestrator/statistics/factorial.py": (f"{_STATISTICS}/test_factorial.py",),
    "orchestrator/statistics/verdicts.py": (f"{_STATISTICS}/test_verdicts.py",),
    "orchestrator/running/trial.py": (f"{_RUNNING}/test_trial_evidence.py", f"{_RUNNING}/test_trial_exclusion.py"),
    "orchestrator/running/gate.py": (f"{_RUNNING}/test_gate.py",),
    "orchestrator/running/measures.py": (f"{_RUNNING}/test_measures.py",),
    "orchestrator/running/recorder.py": (f"{_RUNNING}/test_recorder.py", f"{_RUNNING}/test_run_state.py"),
    "orchestrator/running/runner.py": (f"{_RUNNING}/test_runner.py", f"{_RUNNING}/test_runner_dropping.py"),
    "orchestrator/queue/night.py": ("tests/orchestrator/queue/test_night.py",),
    "orchestrator/planning/memory.py": ("tests/orchestrator/planning/test_memory.py",),
    "orchestrator/report/course.py": ("tests/orchestrator/report/test_course.py",),
    "orchestrator/report/words.py": ("tests/orchestrator/report/test_words.py",),
    "orchestrator/findings/widths.py": ("tests/orchestrator/findings/test_widths.py",),
    "db/redaction.py": ("tests/db/test_redaction.py",),
    "db/transfer/merge.py": ("tests/db/transfer/test_merge.py",),
    "db/transfer/precedence.py": ("tests/db/transfer/test_precedence.py",),
    "workers/catalogue/binding.py": _CATALOGUE,
    "workers/catalogue/evidence.py": (*_CATALOGUE, *_SERVED),
    "workers/catalogue/matches.py": (*_CATALOGUE, *_SERVED),
    "workers/catalogue/signs.py": (*_CATALOGUE, *_SERVED),
    "workers/engines/server.py": ("tests/workers/engines/test_server_engine.py", *_SERVED),
    "workers/engines/server_counts.py": _SERVED,
    "workers/engines/server_signs.py": ("tests/workers/engines/test_server_signs.py", *_SERVED),
    "workers/http/answer.py": ("tests/workers/http/test_answer.py",),
    "workers/http/sse.py": ("tests/workers/http/test_sse.py",),
    "workers/http/tokens.py": ("tests/workers/http/test_tokens.py",),
    "workers/machine/macos.py": ("tests/workers/machine/test_telemetry.py",),
    "workers/machine/process_identity.py": ("tests/workers/machine/test_process_identity.py",),
    "workers/stopwatch.py": ("tests/workers/test_stopwatch.py",),
    "workers/supervision/journal.py": ("tests/workers/supervision/test_journal.py",),
    "workers/supervision/orphans.py": ("tests/workers/supervision/test_orphans.py",),
    "workers/weights/gguf.py": ("tests/workers/weights/test_gguf.py",),
}
# Loaded once, before the forks; of the project's own modules those that import the changed one are loaded again.
_SHARED = ("numpy", "pandas", "sqlalchemy.orm", "alembic.command", "httpx", "psutil", "yaml", "rich.console", "hydra")
_SHARED += ("pytest", "hypothesis", "hypothesis.strategies", "anyio")
_OURS = ("conf", "db", "orchestrator", "workers")
_NOT_LOADED = ("engines", "weights", "dummies")  # which load MLX: it survives no fork
_COPIED = ("conf", "db", "migrations", "orchestrator", "tests", "workers", "pyproject.toml", "docs", "benchmarks")
_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_REVERSED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
_SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div},
    **{ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Mod: ast.Mult},
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: the source between two places, and what stands there instead."""

    line: int
    start: int  # bytes
    end: int
    new: str
    what: str

    def of(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(source: bytes) -> list[Mutant]:
    """Every change of this module, in its order; those that are not valid Python, or change nothing, are left out."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, new in _changes(ast.parse(source)):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        old = source[start:end].decode()
        text = new if isinstance(new, str) else ast.unparse(new)
        text = f"({text})" if isinstance(node, ast.expr) and "\n" not in text else text
        shown = f"{' '.join(old.split())[:70]} -> {text[:70]}"
        made = Mutant(line=node.lineno, start=start, end=end, new=text, what=shown)
        if text.strip("()") != old and _parses(made.of(source)):
            found.append(made)
    return found


def _parses(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST | str]]:
    for node in _nodes(tree):
        if isinstance(node, ast.expr):
            yield from ((node, new) for new in _expressions(node))
        elif isinstance(node, ast.stmt):
            yield from ((node, new) for new in _statements(node))


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in source order, without annotations, docstrings, decorators, f-strings and imports."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for each in value if isinstance(value, list) else [value]:
            skipped = isinstance(each, ast.JoinedStr | ast.Import | ast.ImportFrom) or not isinstance(each, ast.AST)
            if not skipped and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                yield from _nodes(each)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _expressions(node: ast.expr) -> Iterator[ast.AST | str]:
    match node:
        case ast.Compare():
            yield from _comparisons(node)
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            for place in range(len(node.values)):
                left = [*node.values[:place], *node.values[place + 1 :]]
                yield left[0] if len(left) == 1 else _with(node, values=left)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BinOp() if type(node.op) in _SWAPPED:
            yield _with(node, op=_SWAPPED[type(node.op)]())
        case ast.IfExp():
            yield _with(node, body=node.orelse, orelse=node.body)
        case ast.Constant():
            yield from _constants(node.value)
        case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
            yield _with(node, func=ast.Name(_NAMES[name]))
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
            yield from _unfiltered(node)


def _comparisons(node: ast.Compare) -> Iterator[ast.AST]:
    for table in (_BOUNDARY, _REVERSED):
        for place, operator in enumerate(node.ops):
            if type(operator) in table:
                yield _with(node, ops=[*node.ops[:place], table[type(operator)](), *node.ops[place + 1 :]])


def _unfiltered(node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Iterator[ast.AST]:
    for place, one in enumerate(node.generators):
        if one.ifs:
            bare = ast.comprehension(target=one.target, iter=one.iter, ifs=[], is_async=0)
            yield _with(node, generators=[*node.generators[:place], bare, *node.generators[place + 1 :]])


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int):
        yield repr(value + 1)
    elif isinstance(value, float):
        yield repr(value * 2 or 1.0)


def _statements(node: ast.stmt) -> Iterator[ast.AST | str]:
    if isinstance(node, ast.If | ast.While):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return None"
    elif isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Delete):
        yield "pass"
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
        yield "pass"
    elif isinstance(node, ast.Continue):
        yield "break"
    elif isinstance(node, ast.Break):
        yield "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A copy of the project, in which modules are changed."""

    folder: Path
    marked: str = "not nightly"
    imported: dict[str, set[str]] = field(default_factory=dict)  # by each of our modules that is loaded

    def outcome(self, module: str, tests: Sequence[str], *, limit_s: float) -> bool:
        """Return whether these tests pass within this many CPU seconds, and three times as many of wall time."""
        pid = os.fork()
        if pid == 0:
            self._test(module, tests, limit_s)
        deadline = time.monotonic() + 3 * limit_s + 10
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return False
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what a test left behind
        return (self.folder / "passed").exists()

    def _test(self, module: str, tests: Sequence[str], limit_s: float) -> None:
        """Run the tests in the child process; never returns."""
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
            os.chdir(self.folder)
            silent = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            (self.folder / "passed").unlink(missing_ok=True)
            self._forget(module)
            import pytest

            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", self.marked, "--assert=plain"]
            if pytest.main([*options, f"--basetemp={self.folder}/tmp", *tests]) == 0:
                (self.folder / "passed").touch()
        except BaseException:  # noqa: BLE001 - in a fork, which must end here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def load(self) -> None:
        """The project's modules, from here, for this process, its forks and whatever they start."""
        sys.path[:] = [str(self.folder), *(each for each in sys.path if Path(each).resolve() != ROOT)]
        os.environ["PYTHONPATH"] = str(self.folder)
        paths = [path for name in _OURS[1:] for path in sorted((self.folder / name).rglob("*.py"))]
        ours = [".".join(path.relative_to(self.folder).with_suffix("").parts) for path in paths]
        for name in (*_SHARED, *(name for name in ours if not set(name.split(".")) & {*_NOT_LOADED, "__init__"})):
            importlib.import_module(name)
        self.imported.update({name: self._imports(name) for name in sys.modules if name.partition(".")[0] in _OURS})

    def _forget(self, module: str) -> None:
        """Drop the changed module, and all modules that import it, directly or indirectly."""
        gone = {module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")}
        while more := {name for name, wanted in self.imported.items() if name not in gone and wanted & gone}:
            gone |= more
        for name in gone & set(self.imported):
            sys.modules.pop(name)
            parent, _, leaf = name.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(leaf, None)

    def _imports(self, name: str) -> set[str]:
        path = sys.modules[name].__file__
        found = set()
        for node in ast.walk(ast.parse(Path(path).read_bytes())) if path else ():
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        return found


def _copied(folder: Path, *, marked: str) -> Place:
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return Place(folder=folder, marked=marked)


def judged(place: Place, module: str, tests: Sequence[str], made: Sequence[Mutant]) -> list[Mutant]:
    """The mutants that survive."""
    path = place.folder / module
    source = path.read_bytes()
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not place.outcome(module, tests, limit_s=300):
        said = (place.folder / "output").read_text(errors="replace")[-3000:]
        raise SystemExit(f"{said}\n{module}: its tests fail without any change: {' '.join(tests)}")
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    limit_s = 3 * (ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime) + 5
    survivors = []
    for mutant in made:
        path.write_bytes(mutant.of(source))
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()  # known by its time to the second and its size: the last change may have the same
        if place.outcome(module, tests, limit_s=limit_s):
            survivors.append(mutant)
            print(f"  {module}:{mutant.line}: {mutant.what}", flush=True)
    path.write_bytes(source)
    return survivors


def hand_made(folder: Path) -> dict[str, list[Mutant]]:
    """The hand-made mutants of the project in this folder, by module.

    Raises:
        SystemExit: what one of them changes does not occur once in its module: it has to follow the module.
    """
    found: dict[str, list[Mutant]] = {}
    for each in tomllib.loads(HAND_MADE.read_text(encoding="utf-8"))["mutant"]:
        source, old = (folder / each["module"]).read_bytes(), each["old"].encode()
        if source.count(old) != 1:
            raise SystemExit(f"{HAND_MADE.name}: {each['module']}: {source.count(old)} times {each['old']!r}")
        start = source.index(old)
        line, what = source[:start].count(b"\n") + 1, f"{each['old'].strip()} -> {each['new'].strip()}"
        made = Mutant(line=line, start=start, end=start + len(old), new=each["new"], what=what)
        found.setdefault(each["module"], []).append(made)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants of a module; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", help="instead of the module's own, separated by commas")
    parser.add_argument("--hand-made", action="store_true", help="those of hand_made_mutants.toml")
    parser.add_argument("--fast", action="store_true", help="only the tests of the inner loop")
    parser.add_argument("modules", nargs="*")
    asked = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        marked = "not slow and not nightly" if asked.fast else "not nightly"
        place = _copied(Path(folder).resolve(), marked=marked)
        place.load()
        chosen = hand_made(place.folder) if asked.hand_made else {}
        for module in asked.modules or chosen or TESTS:
            every = chosen[module] if asked.hand_made else mutants((place.folder / module).read_bytes())
            luck = random.Random(f"{asked.seed} {module}")
            made = luck.sample(every, asked.sample) if 0 < asked.sample < len(every) else every
            tests = asked.tests.split(",") if asked.tests else TESTS[module]
            survived = judged(place, module, tests, sorted(made, key=lambda each: each.start))
            killed = len(made) - len(survived)
            lines.append(f"| {module} | {len(made)} of {len(every)} | {killed} | {killed / max(len(made), 1):.0%} |")
            print(lines[-1], flush=True)
    print("\n| module | mutants | killed | score |\n|---|---|---|---|", *lines, sep="\n")


if __name__ == "__main__":
    main()
