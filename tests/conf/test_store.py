"""The schemas, the shipped files, and what both must agree on with the worker that they configure."""

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from conf import schema
from conf.store import GROUP_SCHEMAS, register, setting_names
from orchestrator.configuration.engines import engine_kinds, register_engines
from orchestrator.configuration.groups import SHIPPED_DIR, Part, Parts
from orchestrator.configuration.sources import usable
from workers.settings import declarations

SHIPPED: list[Part] = [
    (group, path.stem) for group in GROUP_SCHEMAS for path in sorted((SHIPPED_DIR / group).glob("*.yaml"))
]


@pytest.fixture(scope="module")
def parts() -> Parts:
    loaded = Parts()
    loaded.load(SHIPPED)
    return loaded


def test_every_group_has_a_schema_in_the_config_store() -> None:
    register()
    register()  # again changes nothing
    stored = ConfigStore.instance().list("schema")
    assert {f"{group}.yaml" for group in GROUP_SCHEMAS if group != "engine"} <= set(stored)
    register_engines()
    engines = {f"{name}.yaml" for name in engine_kinds()}
    assert set(ConfigStore.instance().list("schema/engine")) == engines


def test_the_root_composes_with_hydra_alone() -> None:
    register()
    register_engines()
    with initialize_config_dir(str(SHIPPED_DIR), version_base="1.3"):
        config = compose("config", ["engine=mlx_lm_draft", "engine.block_size=6"])
    assert OmegaConf.get_type(config) is schema.RootConfig
    assert OmegaConf.get_type(config.engine) is engine_kinds()["mlx_lm_draft"].schema
    assert (config.engine.block_size, config.checkpoint.bits) == (6, 8)


@pytest.mark.parametrize("part", SHIPPED, ids="/".join)
def test_every_shipped_option_is_complete_and_within_its_limits(part: Part, parts: Parts) -> None:
    values = parts.values(part)
    assert values.get("name", part[1]) == part[1]
    if part[0] == "checkpoint" and values["source"] not in ("simulated", "unknown"):
        usable(values, part=part, parts=parts, given={}, engine=schema.EngineConfig)
    if values.get("draft") and part[0] == "checkpoint":
        assert values["draft"] in parts.options("checkpoint")


@pytest.mark.parametrize("part", SHIPPED, ids="/".join)
def test_every_shipped_file_names_its_schema_and_itself_last(part: Part) -> None:
    raw = OmegaConf.to_container(OmegaConf.load(SHIPPED_DIR / part[0] / f"{part[1]}.yaml"))
    assert isinstance(raw, dict)
    first, *rest = raw["defaults"]
    assert first.startswith(f"/schema/{part[0]}") or (part[0] == "engine" and first in engine_kinds())
    assert rest == (["_self_"] if len(raw) > 1 else [])


def test_no_revision_is_made_up(parts: Parts) -> None:
    assert {parts.values(part)["revision"] for part in SHIPPED if part[0] == "checkpoint"} == {None}


def test_a_sweep_says_what_it_is_for(parts: Parts) -> None:
    for part in SHIPPED:
        if part[0] == "sweep":
            assert len(parts.values(part)["description"]) > 60


def test_every_setting_is_declared_with_its_meaning() -> None:
    """A setting without one would be missing in the documentation and in `interlace engine show`."""
    schemas = [schema for name, schema in GROUP_SCHEMAS.items() if name != "claim"]
    for config in [*schemas, *(kind.schema for kind in engine_kinds().values())]:
        nested = {field.name for field in fields(config) if is_dataclass(field.default_factory)}
        assert set(setting_names(config)) - nested <= set(declarations(config)), config
        assert all(each.meaning.endswith(".") for each in declarations(config).values()), config


def test_the_shipped_prompt_files_are_the_ones_named(parts: Parts) -> None:
    named = {Path(str(parts.values(part)["file"])).name for part in SHIPPED if part[0] == "workload"} - {"None"}
    assert named == {path.name for path in (SHIPPED_DIR / "prompts").glob("*.jsonl")}
