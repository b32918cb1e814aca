"""The layout is the design: who may import whom, by the contracts in .importlinter and what they cannot say."""

import ast
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("conf", "orchestrator", "workers", "db", "migrations")
HEAVY = ("mlx", "mlx_lm", "pandas", "numpy", "scipy", "sqlalchemy", "alembic", "hydra", "omegaconf", "rich", "httpx")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports anywhere, inside functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module}
    return names


def top(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def linted(root: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", str(ROOT / ".importlinter")]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_imports_keep_to_the_layers() -> None:
    done = linted(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("workers/errors.py", "import orchestrator.plan", "The orchestrator drives"),
        ("db/columns.py", "from workers import errors", "Of the workers, the database imports"),
        ("orchestrator/running/runner.py", "import mlx.core", "MLX is imported where models run"),
        ("orchestrator/planning/memory.py", "from orchestrator.running import crew", "The orchestrator's layers"),
        ("orchestrator/running/gate.py", "from orchestrator.running import runner", "Layers of a run"),
        ("orchestrator/statistics/family.py", "import subprocess", "What computes reads nothing"),
        ("orchestrator/statistics/comparability.py", "from orchestrator.statistics import losses", "No cycles"),
    ],
)
def test_an_arrow_that_points_up_is_found(tmp_path: Path, module: str, line: str, contract: str) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / module).open("a") as changed:
        changed.write(f"{line}\n")
    done = linted(tmp_path)
    assert done.returncode == 1
    assert any(contract in row and "BROKEN" in row for row in done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_modules_of_a_package_bear_one_name(package: str) -> None:
    """So that a name in a message, a traceback or a search leads to one file."""
    names = Counter(path.stem for path in modules(package) if path.stem not in ("__init__", "__main__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_files_module_needs_the_standard_library_only() -> None:
    for path in sorted((ROOT / "workers" / "files").glob("*.py")):
        foreign = {name for name in imported(path) if top({name}) - set(sys.stdlib_module_names)}
        assert all(name.startswith("workers.files") for name in foreign), f"{path.name} imports {foreign}"


def test_the_workers_protocol_needs_the_standard_library_only() -> None:
    """So that the worker's side runs in any interpreter."""
    for name in ("protocol", "worker", "stopwatch", "settings", "errors", "engines/base", "__main__"):
        path = ROOT / "workers" / f"{name}.py"
        foreign = top(imported(path)) - set(sys.stdlib_module_names) - {"workers", "_typeshed"}
        assert not foreign, f"{path.name} imports {foreign}"


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return top(set(done.stdout.split()))


def test_the_command_line_loads_nothing_heavy_until_a_command_needs_it() -> None:
    assert not loaded_by("import orchestrator.cli") & set(HEAVY)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['interlace', '--help']\n"
        "import orchestrator.cli\n"
        "try: orchestrator.cli.main()\n"
        "except SystemExit: pass"
    )
    assert not loaded_by(code) & set(HEAVY)


def loaded_by_commands(*commands: str) -> set[str]:
    """Dotted names of all modules that commands have loaded, one after the other in one process."""
    code = (
        "import shlex, sys\n"
        "import orchestrator.cli\n"
        f"for command in {commands!r}:\n"
        "    sys.argv = ['interlace', *shlex.split(command)]\n"
        "    try: orchestrator.cli.main()\n"
        "    except SystemExit as end: assert not end.code, (command, end.code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nsys.stderr.write(' '.join(sys.modules))"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stderr.split())


FRAMES = {"pandas", "scipy"}  # pandas itself loads pyarrow where it is installed
PLANNING = {"hydra", "omegaconf", "numpy"}
ELSEWHERE = {"alembic", "vl_convert", "httpx", "mlx", "huggingface_hub", "transformers"}
DESIGN = "engine=simulated checkpoint=simulated workload=quick engine.effect=1.0,1.2"
OFTEN = FRAMES | PLANNING | ELSEWHERE | {"sqlalchemy.orm", "rich.progress"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A database with one finished run, which simulated its measurements."""
    folder = tmp_path_factory.mktemp("asked")
    database = folder / "asked.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERLACE_DB", str(database))
        patch.setenv("INTERLACE_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        loaded_by_commands(f"run {DESIGN} --quiet")
        loaded_by_commands(f"plan {DESIGN}")  # simulates what it can detect, and keeps that
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "never"),
    [
        (("status", "queue list", "db path"), OFTEN),
        (("query 'SELECT 1'",), OFTEN | {"psutil"}),
        (("doctor --json",), FRAMES | PLANNING | {"alembic", "vl_convert", "mlx"}),
        (("history --simulated", "audit"), PLANNING - {"numpy"} | ELSEWHERE | {"scipy"}),
        ((f"plan {DESIGN}",), FRAMES | ELSEWHERE),
        (("report -o page.html",), PLANNING - {"numpy"} | ELSEWHERE - {"vl_convert"} | {"scipy"}),
        (("audit --help", "queue add --help"), OFTEN | {"sqlalchemy"}),
    ],
)
@pytest.mark.usefixtures("asked")
def test_a_command_loads_no_more_than_it_needs(commands: tuple[str, ...], never: set[str]) -> None:
    loaded = loaded_by_commands(*commands) & never
    assert not loaded


def test_the_orchestrators_process_never_loads_mlx() -> None:
    modules = (
        "commands.planned_run",
        "commands.measurement",
        "running.execution",
        "running.runner",
        "running.crew",
        "configuration.compose",
    )
    code = "\n".join(f"import orchestrator.{name}" for name in modules)
    assert not loaded_by(code) & {"mlx", "mlx_lm"}


def test_the_wheel_holds_the_six_packages_and_no_tests() -> None:
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'packages = ["conf", "orchestrator", "workers", "db", "migrations"]' in listed


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {"migrations"}))  # Alembic runs its env.py by import
def test_no_module_prints_or_is_seeded_at_import(package: str) -> None:
    for path in modules(package):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                pytest.fail(f"{path.relative_to(ROOT)}:{node.lineno} calls something at import time")


def test_no_test_imports_another_test() -> None:
    """Two tests share a helper: importing a test from another collects its fixtures and hides its order."""
    importing = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_")
    ]
    assert importing == []
