"""CPU seconds of each command over those of the imports that it cannot do without. Paired, in a random order.

    python benchmarks/commands.py [--pairs 7] [--only status plan] [--old FOLDER] [--uncached] [--trials]

CPU seconds (user and system, of the process and its children) say more than the clock on a machine that does other
things too. The database holds a simulated run of 38 generations, in a temporary folder. With --old, the same commands
of another checkout run between these, in the same interpreter, each with a database of its own making. Bytecode is
kept, as it is where interlace is installed; with --uncached none is, so that each import compiles its source. With
--trials, what a trial costs in a simulated run, its worker's process included: the slope between two lengths.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent.parent
ORM = "import sqlalchemy.orm"
FRAMES = f"{ORM}, pandas"
PLANNING = f"{ORM}, hydra, numpy"
DRAWING = f"{FRAMES}, vl_convert"
SIMULATED = ("engine=simulated", "checkpoint=simulated", "workload=quick", "engine.effect=1.0,1.2")
PLAN = ("plan", *SIMULATED, "design.rounds=8")
PER_TRIAL = ("run", *SIMULATED, "design.seed=1", "--quiet")
SHORT, LONG = 8, 108  # rounds of the two runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command, the imports that it is compared with, and the largest allowed ratio; None: no goal was set."""

    arguments: tuple[str, ...]
    imports: str
    goal: float | None = None


CASES = {
    "--help": Case(arguments=("--help",), imports="import click", goal=1.3),
    "status": Case(arguments=("status",), imports=ORM, goal=1.4),
    "queue list": Case(arguments=("queue", "list"), imports=ORM, goal=1.4),
    "query": Case(arguments=("query", "speed", "--param", "run=last"), imports=ORM, goal=1.4),
    "doctor": Case(arguments=("doctor",), imports=ORM),
    "plan": Case(arguments=PLAN, imports=PLANNING, goal=2.0),
    "audit": Case(arguments=("audit",), imports=FRAMES, goal=1.6),
    "history": Case(arguments=("history",), imports=FRAMES, goal=1.8),
    "report": Case(arguments=("report", "-o", "page.html"), imports=DRAWING, goal=2.5),
}


@dataclass(frozen=True, slots=True)
class Checkout:
    """A source tree and a folder of its own for its database and caches."""

    tree: Path
    folder: Path
    environ: Mapping[str, str]

    def cpu_s(self, *arguments: str) -> float:
        """CPU seconds of a command."""
        own = {"INTERLACE_DB": "bench.db", "INTERLACE_CACHE": "cache", "PYTHONPATH": str(self.tree), "COLUMNS": "100"}
        command = [sys.executable, "-m", "orchestrator", *arguments]
        return cpu_s(command, cwd=self.folder, environ={**self.environ, **own})

    def prepare(self) -> None:
        """Store the run that the commands look at: 38 generations, warm-ups included."""
        self.folder.mkdir()
        self.cpu_s("run", *SIMULATED, "design.rounds=8", "--quiet")


def bytecode_environ(folder: Path, *, kept: bool) -> dict[str, str]:
    """This process's environment, with bytecode in a folder of its own, or in none."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return environ | {"PYTHONPYCACHEPREFIX": str(folder)} | ({} if kept else {"PYTHONDONTWRITEBYTECODE": "1"})


def cpu_s(command: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> float:
    """User and system seconds of a process and all its children that ended."""
    process = subprocess.Popen(command, cwd=cwd, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    problem = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{problem.decode()}")
    return usage.ru_utime + usage.ru_stime


def paired(
    case: Case, checkouts: Mapping[str, Checkout], environ: Mapping[str, str], *, pairs: int, draw: random.Random
) -> dict[str, list[float]]:
    """CPU seconds by "imports" and by checkout, each `pairs` times; one more of each comes first and is left out."""
    taken: dict[str, list[float]] = {"imports": [], **{name: [] for name in checkouts}}
    for number in range(pairs + 1):
        for name in draw.sample(sorted(taken), len(taken)):
            checkout = checkouts.get(name)
            if checkout is None:
                spent_s = cpu_s([sys.executable, "-c", case.imports], cwd=HERE, environ=environ)
            else:
                spent_s = checkout.cpu_s(*case.arguments)
            if number:
                taken[name].append(spent_s)
    return taken


def show_commands(
    checkouts: Mapping[str, Checkout], environ: Mapping[str, str], *, only: Sequence[str], pairs: int
) -> None:
    heads = "".join(f"{name + ' s':>8}{'ratio':>7}" for name in checkouts)
    print(f"{'command':<12}{'imports s':>10}{heads}{'goal':>6}  imports")
    draw = random.Random(0)
    for name, case in CASES.items():
        if only and name not in only:
            continue
        taken = paired(case, checkouts, environ, pairs=pairs, draw=draw)
        cells = ""
        for checkout in checkouts:
            ratios = [ours / theirs for ours, theirs in zip(taken[checkout], taken["imports"], strict=True)]
            cells += f"{statistics.median(taken[checkout]):>8.2f}{statistics.median(ratios):>7.2f}"
        goal = "" if case.goal is None else f"{case.goal:.1f}"
        print(f"{name:<12}{statistics.median(taken['imports']):>10.2f}{cells}{goal:>6}  {case.imports}", flush=True)


def show_trials(checkouts: Mapping[str, Checkout], *, pairs: int) -> None:
    """The slope between two lengths, so that starting up and judging do not count."""
    draw, slopes = random.Random(0), {name: [] for name in checkouts}  # type: dict[str, list[float]]
    for _ in range(pairs):
        for name in draw.sample(sorted(checkouts), len(checkouts)):
            short_s, long_s = (checkouts[name].cpu_s(*PER_TRIAL, f"design.rounds={n}") for n in (SHORT, LONG))
            slopes[name].append((long_s - short_s) / ((LONG - SHORT) * 3))
    for name, values in slopes.items():
        print(f"a trial of a simulated run, {name}: {1000 * statistics.median(values):.1f} ms of CPU (goal: 10)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=CASES, default=[])
    parser.add_argument("--old", type=Path, metavar="FOLDER", help="another checkout, to run between these")
    parser.add_argument("--uncached", action="store_true", help="no bytecode: each import compiles its source")
    parser.add_argument("--trials", action="store_true", help="a trial's cost instead of the commands'")
    wanted = parser.parse_args()
    trees = ({} if wanted.old is None else {"old": wanted.old.resolve()}) | {"new": HERE}
    with TemporaryDirectory() as folder:
        environ = bytecode_environ(Path(folder) / "bytecode", kept=not wanted.uncached)
        checkouts = {name: Checkout(tree, Path(folder) / name, environ) for name, tree in trees.items()}
        for checkout in checkouts.values():
            checkout.prepare()
        if wanted.trials:
            show_trials(checkouts, pairs=wanted.pairs)
        else:
            show_commands(checkouts, environ, only=wanted.only, pairs=wanted.pairs)


if __name__ == "__main__":
    main()
