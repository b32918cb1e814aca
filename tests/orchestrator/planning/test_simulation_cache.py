"""A simulated number is computed once for the same inputs and code, and never kept beyond either."""

from pathlib import Path

import pytest

from orchestrator.planning import simulation_cache
from orchestrator.planning.simulation_cache import simulated


class Simulation:
    """Counts how often it was asked for its result."""

    def __init__(self, result: float | None) -> None:
        self.result, self.asked = result, 0

    def __call__(self) -> float | None:
        self.asked += 1
        return self.result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(simulation_cache, "folder", lambda: tmp_path / "simulations")
    return tmp_path / "simulations"


@pytest.mark.parametrize("result", [0.0612345678901234567, 17, None])
@pytest.mark.usefixtures("folder")
def test_the_second_time_it_is_read(result: float | None) -> None:
    simulation = Simulation(result)
    assert [simulated("effect", {"rounds": 8}, simulation) for _ in range(2)] == [result, result]
    assert simulation.asked == 1


@pytest.mark.usefixtures("folder")
def test_other_inputs_and_other_names_are_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulated("effect", {"rounds": 8}, Simulation(1.0)) == 1
    assert simulated("effect", {"rounds": 9}, Simulation(2.0)) == 2
    assert simulated("rounds", {"rounds": 8}, Simulation(3.0)) == 3
    monkeypatch.setattr(simulation_cache, "code_digest", lambda: "of a changed method")
    assert simulated("effect", {"rounds": 8}, Simulation(4.0)) == 4


def test_the_code_is_that_of_the_simulation_and_of_the_judgement() -> None:
    root = Path(simulation_cache.__file__).parent.parent.parent
    assert all((root / name).exists() for name in simulation_cache.CODE)
    assert len(simulation_cache.code_digest()) == 64


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"result": "7"}', b'{"result": true}', b"\xff"])
def test_a_damaged_result_is_simulated_again(folder: Path, content: bytes) -> None:
    simulated("effect", {}, Simulation(1.0))
    (kept,) = folder.iterdir()
    kept.write_bytes(content)
    assert simulated("effect", {}, Simulation(2.0)) == 2
    assert simulated("effect", {}, Simulation(3.0)) == 2


def test_a_place_that_cannot_be_written_costs_the_memory_only(folder: Path) -> None:
    folder.write_text("a file where the folder should be", encoding="utf-8")
    assert simulated("effect", {}, Simulation(1.0)) == 1
    assert simulated("effect", {}, Simulation(2.0)) == 2


def test_the_oldest_results_are_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_cache, "MOST_RESULTS", 2)
    for rounds in range(4):
        simulated("effect", {"rounds": rounds}, Simulation(1.0))
    assert len(list(folder.iterdir())) == 2
