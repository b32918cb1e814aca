"""The schemas, the shipped files, and what both must agree on with the worker that they configure."""

from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from conf import limits, schema
from conf.store import ENGINE_SCHEMAS, GROUP_SCHEMAS, SIMULATED_TARGET, register, setting_names
from orchestrator.configuration.groups import SHIPPED_DIR, Part, Parts
from orchestrator.configuration.sources import usable
from workers.engines import simulated
from workers.machine.drift import PROFILES

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
    engines = {f"{target.split('.')[-2]}.yaml" for target in ENGINE_SCHEMAS}
    assert set(ConfigStore.instance().list("schema/engine")) == engines


def test_the_root_composes_with_hydra_alone() -> None:
    register()
    with initialize_config_dir(str(SHIPPED_DIR), version_base="1.3"):
        config = compose("config", ["engine=mlx_lm_draft", "engine.block_size=6"])
    assert OmegaConf.get_type(config) is schema.RootConfig
    assert OmegaConf.get_type(config.engine) is schema.MlxLmDraftConfig
    assert (config.engine.block_size, config.checkpoint.bits) == (6, 8)


@pytest.mark.parametrize("part", SHIPPED, ids="/".join)
def test_every_shipped_option_is_complete_and_within_its_limits(part: Part, parts: Parts) -> None:
    values = parts.values(part)
    assert values.get("name", part[1]) == part[1]
    if part[0] == "checkpoint" and values["source"] != "simulated":
        usable(values, part=part, parts=parts, given={}, engine=schema.EngineConfig)
    if values.get("draft") and part[0] == "checkpoint":
        assert values["draft"] in parts.options("checkpoint")


@pytest.mark.parametrize("part", SHIPPED, ids="/".join)
def test_every_shipped_file_names_its_schema_and_itself_last(part: Part) -> None:
    raw = OmegaConf.to_container(OmegaConf.load(SHIPPED_DIR / part[0] / f"{part[1]}.yaml"))
    assert isinstance(raw, dict)
    first, *rest = raw["defaults"]
    assert first.startswith(f"/schema/{part[0]}")
    assert rest == (["_self_"] if len(raw) > 1 else [])


def test_no_revision_is_made_up(parts: Parts) -> None:
    assert {parts.values(part)["revision"] for part in SHIPPED if part[0] == "checkpoint"} == {None}


def test_a_sweep_says_what_it_is_for(parts: Parts) -> None:
    for part in SHIPPED:
        if part[0] == "sweep":
            assert len(parts.values(part)["description"]) > 60


@pytest.mark.parametrize("target", sorted(ENGINE_SCHEMAS))
def test_an_engines_schema_has_the_settings_of_the_worker_with_their_defaults(target: str) -> None:
    """A setting that only one of the two knows would be refused at run time, or never be settable.

    The draft is the orchestrator's, which sends the worker a whole checkpoint, and what every engine has decides how
    the worker is started.
    """
    common = {field.name for field in fields(schema.EngineConfig)}
    module = import_module(target.rpartition(".")[0])
    ours = {
        field.name: field.default for field in fields(ENGINE_SCHEMAS[target]) if field.name not in common | {"draft"}
    }
    theirs = {field.name: field.default for field in fields(module.Settings)}
    assert MISSING not in ours.values()
    assert ours == theirs


def test_the_simulated_engines_words_are_the_workers() -> None:
    rules = limits.RULES[schema.SimulatedConfig]
    for profile in PROFILES:
        assert rules["drift"](profile) is None
    for fault in simulated.FAULTS:
        assert rules["fault"](fault) is None
    assert all(word in str(rules["drift"]("?")) for word in PROFILES)
    assert str(rules["fault"]("?")).count(",") == len(simulated.FAULTS) - 1
    assert SIMULATED_TARGET in ENGINE_SCHEMAS


def test_every_limit_is_of_a_field_that_exists() -> None:
    for config, rules in limits.RULES.items():
        assert set(rules) <= set(setting_names(config)), config


def test_the_shipped_prompt_files_are_the_ones_named(parts: Parts) -> None:
    named = {Path(str(parts.values(part)["file"])).name for part in SHIPPED if part[0] == "workload"} - {"None"}
    assert named == {path.name for path in (SHIPPED_DIR / "prompts").glob("*.jsonl")}
