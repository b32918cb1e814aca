"""`import interlace`: stored runs as frames, an audit that draws itself, and no other project's module by mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

import interlace
from db.engine import Database
from db.errors import RunNotFoundError
from orchestrator.notebook import Audit
from tests.orchestrator.report.runs import SCRIPT, hostile_arms, hostile_plan, store


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The database's file and the run's id."""
    folder = tmp_path_factory.mktemp("notebook")
    database: Database
    database, run_id = store(folder, hostile_plan())
    database.dispose()
    return str(folder / "report.db"), run_id


def test_a_runs_trials_are_a_frame(stored: tuple[str, str]) -> None:
    url, run_id = stored
    found = interlace.trials(run_id[:18], db=url)
    assert set(found["run_id"]) == {run_id}
    assert set(found["arm"]) == {arm.name for arm in hostile_arms()}


def test_the_verdicts_are_those_of_the_audit(stored: tuple[str, str]) -> None:
    url, run_id = stored
    judged = interlace.audit(db=url)
    assert isinstance(judged, Audit)
    assert judged.run_id == run_id
    columns = ["treatment", "prompt_class", "turn", "verdict", "ratio", "ci_low", "ci_high"]
    assert interlace.verdicts(db=url)[columns].equals(judged.table[columns])
    assert len(judged.sentences) == len(hostile_arms()) - 1
    assert list(interlace.runs(db=url)["run_id"]) == [run_id]
    assert str(judged).startswith("# ")


def test_an_audit_draws_itself_and_executes_nothing(stored: tuple[str, str]) -> None:
    drawn = interlace.audit(db=stored[0])._repr_html_()
    assert "Simulated" in drawn
    assert "<table" in drawn
    assert "width 4" in drawn
    assert SCRIPT not in drawn
    assert "<img" not in drawn


def test_a_run_that_is_not_there_is_reported(stored: tuple[str, str]) -> None:
    with pytest.raises(RunNotFoundError, match="no run has this in its id"):
        interlace.trials("nosuch", db=stored[0])


def in_folder(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Python as a notebook starts it: the folder is the first place where modules are looked for."""
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["db.py", "conf/__init__.py", "workers/__init__.py", "orchestrator/__init__.py"])
def test_a_module_of_the_same_name_beside_the_notebook_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("raise SystemExit('executed')\n", encoding="utf-8")
    done = in_folder(tmp_path, "import interlace")
    assert done.returncode == 1
    assert f"finds {tmp_path / name} instead: rename that file or folder" in done.stderr
    assert "executed" not in done.stderr


def test_a_folder_of_data_with_the_same_name_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "conf").mkdir()
    assert in_folder(tmp_path, "import interlace").returncode == 0


def test_importing_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = "print({'pandas', 'sqlalchemy', 'hydra', 'mlx', 'rich'} & set(sys.modules))"
    assert in_folder(tmp_path, f"import interlace, sys; {heavy}").stdout == "set()\n"


def test_python_m_interlace_is_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "interlace", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("interlace ")
