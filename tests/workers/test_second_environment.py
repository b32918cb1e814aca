"""`engine.python`: the worker in another environment's interpreter, a real one, which sees nothing of this one."""

import sys
import textwrap
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.plan import Deadlines
from tests.orchestrator.composing import plan_of
from workers.errors import FaultKind, WorkerFault
from workers.process import WorkerProcess, WorkerSpec
from workers.protocol import Generate, Load
from workers.surroundings import installed, versions

DEADLINES = Deadlines(load_s=60, first_token_s=60, inter_token_s=60, total_s=60, teardown_s=10)
SIMULATED = "workers.engines.simulated.Simulated"
MLX_LM = "workers.engines.mlx_lm.MlxLm"
TURNS = [[{"role": "user", "content": "one"}]]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment without a single package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def worker(empty: Path, tmp_path: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess(spec(tmp_path, python=str(empty))) as process:
        yield process


def spec(folder: Path, *, python: str, environment: dict[str, str] | None = None) -> WorkerSpec:
    return WorkerSpec(
        run_id="run-1",
        arm="arm-1",
        log_path=folder / "worker.log",
        journal_path=folder / "journal.jsonl",
        python=python,
        environment=environment or {},
    )


def load(target: str = SIMULATED, **settings: object) -> Load:
    return Load(target=target, settings=settings, checkpoint={}, draft=None, sampling={})


def test_the_worker_runs_there_and_says_what_is_installed_there(worker: WorkerProcess, empty: Path) -> None:
    loaded = worker.load(load(), DEADLINES)
    assert loaded.simulated
    assert worker.hello is not None
    versions = worker.hello.versions
    assert versions["interlace"] == installed("interlace")  # the code that runs is this one's
    assert {name for name, found in versions.items() if found} == {"interlace"}
    assert installed("mlx")
    (only,) = worker.generate(Generate(request_id="r", turns=TURNS, max_tokens=4, seed=0), DEADLINES)
    assert len(only.token_ids) == 4


def test_nothing_of_this_environment_can_be_imported_there(worker: WorkerProcess) -> None:
    """Not even through a search path that this process was given."""
    with pytest.raises(WorkerFault, match="mlx") as raised:
        worker.load(load(MLX_LM), DEADLINES)
    assert raised.value.kind is FaultKind.package_missing
    assert str(worker.spec.python) in str(raised.value)


def test_a_search_path_of_ours_does_not_leak(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(sys.modules["psutil"].__file__ or "").parent.parent))
    with WorkerProcess(spec(tmp_path, python=str(empty))) as process, pytest.raises(WorkerFault, match="mlx"):
        process.load(load(MLX_LM), DEADLINES)


def test_what_it_prints_reaches_the_log_at_once(worker: WorkerProcess) -> None:
    worker.load(load(fault="print"), DEADLINES)
    worker.generate(Generate(request_id="r", turns=TURNS, max_tokens=4, seed=0), DEADLINES)
    assert "a line for the log" in worker.spec.log_path.read_text()


def test_a_python_that_is_too_old_says_so(tmp_path: Path) -> None:
    """No older one is at hand: one that claims to be."""
    script = tmp_path / "old"
    lines = f"""\
        #!/bin/sh
        exec {sys.executable} -c 'import runpy, sys
        sys.version_info = (3, 10, 4)
        runpy.run_path(sys.argv[3], run_name="__main__")' "$@"
        """
    script.write_text(textwrap.dedent(lines))
    script.chmod(0o755)
    with (
        WorkerProcess(spec(tmp_path, python=str(script))) as process,
        pytest.raises(WorkerFault, match=r"is Python 3\.10\.4, a worker needs 3\.11 or newer; change engine\.python"),
    ):
        process.load(load(), DEADLINES)


def test_an_interpreter_that_is_none_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"engine\.python=.*/no/such is no program"):
        plan_of("engine=simulated", "workload=quick", f"engine.python={tmp_path}/no/such")


def test_the_plan_keeps_the_link_that_makes_an_environment(empty: Path) -> None:
    (arm,) = plan_of("engine=simulated", "workload=quick", f"engine.python={empty}").arms
    assert arm.engine["python"] == str(empty)
    assert empty.is_symlink()


def test_versions_name_what_is_installed_and_what_is_not() -> None:
    here = versions()
    assert here["mlx-lm"]
    assert here["omlx"] is None


# The environment variables of a worker.


def test_a_variable_reaches_the_worker_and_is_noted(tmp_path: Path) -> None:
    wanted = {"OPENBLAS_NUM_THREADS": "1"}
    with WorkerProcess(spec(tmp_path, python=sys.executable, environment=wanted)) as process:
        loaded = process.load(load(environment=wanted), DEADLINES)
    assert "environment: OPENBLAS_NUM_THREADS=1" in loaded.notes


def test_a_variable_that_does_not_hold_stops_the_arm(tmp_path: Path) -> None:
    with (
        WorkerProcess(spec(tmp_path, python=sys.executable)) as process,
        pytest.raises(WorkerFault, match=r"engine\.environment\.INTERLACE_TRY=1 is None in the worker"),
    ):
        process.load(load(environment={"INTERLACE_TRY": "1"}), DEADLINES)


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is the Linux linker's")
def test_a_library_that_could_not_be_preloaded_stops_the_arm(tmp_path: Path) -> None:
    """The linker prints a line and goes on: the arm would be measured under a wrong name."""
    wanted = {"LD_PRELOAD": "libnosuch.so.0"}
    with (
        WorkerProcess(spec(tmp_path, python=sys.executable, environment=wanted)) as process,
        pytest.raises(WorkerFault, match=r"libnosuch\.so\.0 was not loaded; install it") as raised,
    ):
        process.load(load(environment=wanted), DEADLINES)
    assert raised.value.kind is FaultKind.unsupported_setting


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is the Linux linker's")
def test_a_library_that_was_preloaded_passes(tmp_path: Path) -> None:
    wanted = {"LD_PRELOAD": "libutil.so.1"}
    with WorkerProcess(spec(tmp_path, python=sys.executable, environment=wanted)) as process:
        assert process.load(load(environment=wanted), DEADLINES).notes
