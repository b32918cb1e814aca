"""Another package's engine, installed by an entry point: the contract, and the whole way from `engine=toy` to rows."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.shells import Shell
from tests.toy.toy_engine import Toy
from workers.engines.contract import EngineCase, EngineContract, engine_case


def make(settings: Mapping[str, Any]) -> Toy:
    return Toy(settings=settings, checkpoint={}, draft=None, sampling={})


@pytest.fixture(scope="module")
def case() -> Iterator[EngineCase]:
    with engine_case(make, requested=False) as case:
        yield case


class TestContract(EngineContract):
    pass


def install(site: Path, *, value: str = "toy_engine:Toy", name: str = "toy") -> None:
    """The result of `pip install toy-engine`: the module, its metadata and the entry point."""
    site.mkdir()
    shutil.copy(Path(__file__).with_name("toy_engine.py"), site)
    info = site / "toy_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-engine\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[interlace.engines]\n{name} = {value}\n", encoding="utf-8")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Commands in processes of their own, in an environment that holds what `install` put there."""
    made = Shell(tmp_path)
    made.env["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    return made


def test_an_installed_engine_is_an_option_with_its_settings(shell: Shell, tmp_path: Path) -> None:
    install(tmp_path / "site")
    listed = shell.process("engine", "list").stdout
    assert "toy-engine" in listed
    shown = shell.process("engine", "show", "toy").stdout
    assert "engine.repeats=3" in shown
    assert "The engine's own: `times`." in shown
    assert "a whole number, at least 1" in shown


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("engine.repeats=0", "engine.repeats is 0: give at least 1"),
        ("engine.last_words=1001", "engine.last_words is more than a parrot remembers"),
        ("engine.repeat=2", "did you mean repeats?"),
        ("engine.repeats=often", "engine.repeats takes a whole number"),
    ],
)
def test_its_limits_hold_before_anything_runs(shell: Shell, tmp_path: Path, override: str, said: str) -> None:
    install(tmp_path / "site")
    done = shell.process("plan", "checkpoint=dummy-tiny", "engine=toy", "workload=quick", override, code=2)
    assert said in done.stderr


def test_it_runs_beside_another_arm_and_is_stored(shell: Shell, tmp_path: Path) -> None:
    install(tmp_path / "site")
    overrides = ("checkpoint=dummy-tiny", "engine=toy", "engine.repeats=1,2", "workload=quick", "design.rounds=6")
    shell.process("run", *overrides, "gate=none", "design.probe=false")
    rows = shell.ask("SELECT DISTINCT arm, engine, engine_version, requested FROM trial_flat WHERE status = 'done'")
    assert {row["engine"] for row in rows} == {"toy"}
    assert {row["engine_version"] for row in rows} == {"1.0"}
    assert len({row["arm"] for row in rows}) == 2


def test_a_package_that_does_not_import_is_reported_when_it_is_chosen(shell: Shell, tmp_path: Path) -> None:
    install(tmp_path / "site", value="toy_engine:Missing")
    shell.process("plan", "checkpoint=simulated", "engine=simulated", "workload=quick")
    done = shell.process("plan", "checkpoint=dummy-tiny", "engine=toy", "workload=quick", code=2)
    assert "engine toy cannot be used: package toy-engine" in done.stderr
    assert "engine toy cannot be used" in shell.process("engine", "list").stdout


def test_a_name_of_ours_stays_ours(shell: Shell, tmp_path: Path) -> None:
    install(tmp_path / "site", name="mlx_lm")
    listed = shell.process("engine", "list").stdout
    assert "package toy-engine brings an engine of that name too; interlace's is used" in " ".join(listed.split())


def test_a_class_that_no_package_offers_is_not_executed(shell: Shell, tmp_path: Path) -> None:
    """A plan names what a worker imports: only what was installed as an engine may be named."""
    (tmp_path / "site").mkdir()
    shutil.copy(Path(__file__).with_name("toy_engine.py"), tmp_path / "site")
    (tmp_path / "lab" / "engine").mkdir(parents=True)
    (tmp_path / "lab" / "engine" / "mine.yaml").write_text("_target_: toy_engine.Toy\n", encoding="utf-8")
    done = shell.process("plan", "--config-dir", "lab", "engine=mine", "workload=quick", code=2)
    assert "`_target_: toy_engine.Toy` is not an engine" in done.stderr
