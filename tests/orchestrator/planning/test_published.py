"""Models that are not on this machine: planned from published sizes, and named as what would be fetched."""

from pathlib import Path

import pytest

from orchestrator.configuration.compose import make_plan
from orchestrator.configuration.groups import Parts
from orchestrator.planning.fetching import download_sizes
from orchestrator.planning.memory import ModelSize, arm_memory, plan_memory
from orchestrator.planning.published import published
from orchestrator.planning.residency import model_size, read_bytes
from orchestrator.planning.weights import fetch_line, memory_line
from tests.orchestrator import plans

HUB = {"name": "m", "source": "hub", "hub_id": "mlx-community/Qwen3.6-35B-A3B-4bit"}
GB = 10**9


@pytest.fixture(autouse=True)
def nothing_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


def test_a_listed_repository_has_its_published_sizes() -> None:
    assert model_size(HUB) == ModelSize(weights_bytes=20_400_000_000, kv_bytes_per_token=20_480)
    assert read_bytes(HUB) == 2_000_000_000


def test_another_repository_or_source_has_no_published_size() -> None:
    assert published(HUB | {"hub_id": "somebody/else"}) is None
    assert published(HUB | {"source": "local"}) is None
    assert model_size(HUB | {"hub_id": "somebody/else"}) == ModelSize(weights_bytes=None, kv_bytes_per_token=None)


def test_a_plan_names_what_it_would_fetch_once() -> None:
    plan = make_plan(["checkpoint=qwen3.8-27b-4bit", "engine=mlx_lm,dflash", "engine.block_size=4,8"]).plan
    assert fetch_line(download_sizes(plan)) == (
        "qwen3.8-27b-4bit 16.1 GB, qwen3.8-27b-dflash2 3.9 GB (19.9 GB in all): not on this machine yet"
    )


def test_a_size_that_nobody_published_is_unknown() -> None:
    plan = make_plan(["checkpoint=qwen3.6-35b-a3b-4bit", "engine=mlx_lm,omlx_dflash"]).plan
    assert fetch_line(download_sizes(plan)) == (
        "qwen3.6-35b-a3b-4bit 20.4 GB, qwen3.6-35b-a3b-dflash unknown (20.4 GB in all, and what is unknown): "
        "not on this machine yet"
    )


def test_nothing_is_fetched_for_models_without_a_hub() -> None:
    assert download_sizes(plans.plan(plans.arm("a"), plans.arm("b"))) == {}


def test_known_parts_alone_may_be_too_much() -> None:
    """A draft of unknown size does not hide that its target does not fit."""
    target = ModelSize(weights_bytes=30 * GB, kv_bytes_per_token=1)
    arm = arm_memory("a", model=target, draft=ModelSize(weights_bytes=None, kv_bytes_per_token=None), context_tokens=1)
    assert plan_memory([arm], budget_bytes=20 * GB).too_large == (arm,)
    assert plan_memory([arm, arm], budget_bytes=40 * GB).resident_fits is False
    assert plan_memory([arm], budget_bytes=40 * GB).resident_fits is None
    assert memory_line(plan_memory([arm], budget_bytes=40 * GB)).startswith(
        "all arms together at least 30.6 GB of 40.0"
    )


def test_every_shipped_target_of_the_hub_has_its_sizes() -> None:
    """So that a plan says what it downloads, whether it fits and how long it takes, before anything is here."""
    parts = Parts(None)
    names = parts.options("checkpoint")
    parts.load([("checkpoint", name) for name in names])
    shipped = [parts.values(("checkpoint", name)) for name in names if "dflash" not in name]
    unknown = [each["name"] for each in shipped if each["source"] == "hub" and None in _sizes(each)]
    assert unknown == ["gpt-oss-20b"]  # whose cache rotates in every other layer


def _sizes(checkpoint: dict[str, object]) -> tuple[int | None, int | None]:
    size = model_size(checkpoint)
    return size.weights_bytes, size.kv_bytes_per_token
