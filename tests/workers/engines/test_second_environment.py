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
from tests.workers import tiny_drafts
from tests.workers.answering import answering, check
from tests.workers.environments import elsewhere
from workers.engines.contract import converse
from workers.engines.mlx_lm import MlxLm
from workers.environment import installed, versions
from workers.errors import FaultKind, WorkerFault
from workers.protocol import Generate, Load
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

DEADLINES = Deadlines(load_s=60, first_token_s=60, inter_token_s=60, total_s=60, teardown_s=10)
SIMULATED = "workers.engines.simulated.Simulated"
DFLASH = "workers.engines.dflash.Dflash"
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


def test_a_python_that_is_too_old_is_reported(tmp_path: Path) -> None:
    """No older one is at hand: one that claims to be."""
    script = tmp_path / "old"
    lines = f"""\
        #!/bin/sh
        exec {sys.executable} -c 'import runpy, sys
        sys.version_info = (3, 10, 4)
        runpy.run_path(next(each for each in sys.argv if each.endswith("launch.py")), run_name="__main__")' "$@"
        """
    script.write_text(textwrap.dedent(lines))
    script.chmod(0o755)
    with (
        WorkerProcess(spec(tmp_path, python=str(script))) as process,
        pytest.raises(WorkerFault, match=r"is Python 3\.10\.4, a worker needs 3\.11 or newer; change engine\.python"),
    ):
        process.load(load(), DEADLINES)


def test_an_interpreter_that_is_none_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"engine\.python=.*/no/such is not a program"):
        plan_of("engine=simulated", "workload=quick", f"engine.python={tmp_path}/no/such")


def test_the_plan_keeps_the_link_that_makes_an_environment(empty: Path) -> None:
    (arm,) = plan_of("engine=simulated", "workload=quick", f"engine.python={empty}").arms
    assert arm.engine["python"] == str(empty)
    assert empty.is_symlink()


def test_versions_name_what_is_installed_and_what_is_not() -> None:
    here = versions()
    assert here["mlx-lm"]
    assert here["omlx"] is None


# z-lab's dflash, whose pins exclude this environment's versions.


@pytest.fixture(scope="module")
def other() -> Path:
    return elsewhere()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "target": tiny_drafts.build_target(folder / "target"),
        "hybrid": tiny_drafts.build_hybrid(folder / "hybrid"),
        "v1": tiny_drafts.build_draft(folder / "v1"),
        "v2": tiny_drafts.build_draft(folder / "v2", version=2),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("target", "draft"), [("target", "v1"), ("target", "v2"), ("hybrid", "v1")])
@pytest.mark.nightly  # a real model in an environment of its own
def test_dflash_of_z_lab_runs_there(
    other: Path, models: dict[str, dict[str, object]], tmp_path: Path, target: str, draft: str
) -> None:
    """The tokens are those of plain decoding here, with another mlx-lm."""
    plain = MlxLm(settings={}, checkpoint=models[target], draft=None, sampling={"name": "greedy"})
    plain.load()
    wanted = [each.result for each in converse(plain, "one", "two", max_tokens=19)]
    settings = {"backend": "dflash", "block_size": 4}
    with answering(
        other, DFLASH, folder=tmp_path, checkpoint=models[target], draft=models[draft], settings=settings
    ) as worker:
        found = worker.ask("one", "two", max_tokens=19)
        (single,) = worker.ask("one", max_tokens=1)
    assert worker.loaded.engine_version == "dflash 0.1.0"
    assert worker.process.hello is not None
    assert worker.process.hello.versions["mlx-lm"] == "0.31.3" != installed("mlx-lm")
    for answer, expected in zip(found, wanted, strict=True):
        check(answer, max_tokens=19)
        assert answer.token_ids == list(expected.token_ids)
        assert answer.text == expected.text
        assert answer.evidence[0].engaged
    assert single.evidence[0].engaged is False


@pytest.mark.slow
def test_an_older_mlx_lm_runs_the_plain_engine_there(
    other: Path, models: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    with answering(other, MLX_LM, folder=tmp_path, checkpoint=models["target"]) as worker:
        (answer,) = worker.ask("one")
    assert worker.loaded.engine_version == "0.31.3"
    assert answer.evidence[0].engaged is False


@pytest.mark.slow
def test_a_package_that_is_missing_there_is_named_with_its_command(
    other: Path, models: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    with (
        pytest.raises(WorkerFault, match=r"engine prompt_lookup needs mlx-dspark, which .*; run: .* mlx-dspark"),
        answering(other, "workers.engines.prompt_lookup.PromptLookup", folder=tmp_path, checkpoint=models["target"]),
    ):
        pass


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
