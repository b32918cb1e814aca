"""The first line of a plan: what it downloads, whether it fits, how long it takes."""

import pytest

from orchestrator.planning.estimate import Estimate
from orchestrator.planning.headline import headline
from orchestrator.planning.memory import MemoryPlan, ModelSize, arm_memory, plan_memory

GB = 10**9
BASIS = "on an Apple M4 Max, from its bandwidth"


def memory(*weights: int | None, budget: int = 36 * GB, attached: bool = False) -> MemoryPlan:
    arms = [
        arm_memory(
            f"arm {number}",
            model=ModelSize(weights_bytes=each, kv_bytes_per_token=0),
            draft=None,
            context_tokens=1,
            overhead_bytes=0,
            attached=attached,
        )
        for number, each in enumerate(weights)
    ]
    return plan_memory(arms, budget_bytes=budget)


def line(
    held: MemoryPlan,
    *,
    downloads: dict[str, int | None] | None = None,
    residency: str = "resident",
    seconds: float | None = 3 * 3600,
) -> str:
    duration = Estimate(duration_s=seconds, assumption="")
    return headline(downloads=downloads or {}, memory=held, residency=residency, duration=duration, basis=BASIS)


def test_it_says_first_what_people_ask_first() -> None:
    said = line(memory(9 * GB, 12 * GB), downloads={"a": 9 * GB, "b": 4_200_000_000})
    assert said == f"downloads 13.2 GB; needs 21.0 GB of 36.0 GB; takes about 3 h {BASIS}"


@pytest.mark.parametrize(
    ("held", "residency", "words"),
    [
        (memory(9 * GB, 30 * GB), "resident", "does not fit: needs 39.0 GB of 36.0 GB"),
        (memory(9 * GB, 30 * GB), "swap", "; needs 30.0 GB of 36.0 GB"),
        (memory(40 * GB), "swap", "does not fit: needs 40.0 GB of 36.0 GB"),
        (memory(9 * GB, None), "resident", "needs at least 9.0 GB of 36.0 GB"),
        (memory(None), "resident", "memory unknown before the models are here, of 36.0 GB"),
        (memory(9 * GB, attached=True), "resident", "servers that run already hold the models"),
    ],
)
def test_whether_it_fits(held: MemoryPlan, residency: str, words: str) -> None:
    assert words.removeprefix("; ") in line(held, residency=residency)


def test_what_is_not_known_is_not_made_up() -> None:
    assert line(memory(GB), downloads={"a": None}).startswith("downloads a (size unknown); ")
    assert line(memory(GB), downloads={"a": None, "b": GB}).startswith("downloads at least 1.0 GB; ")
    assert line(memory(GB), seconds=None).endswith("; how long is not known")
    assert line(memory(GB)).startswith("needs")


def test_a_small_download_is_not_nothing() -> None:
    assert line(memory(GB), downloads={"a": 12_500_000}).startswith("downloads 12.5 MB; ")
