"""Settings against their schema: each mistake in one line, with the key and what it takes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from conf import schema
from conf.store import GROUP_SCHEMAS
from orchestrator.configuration.checks import all_problems, has_key, set_value
from orchestrator.configuration.engines import engine_kinds
from orchestrator.configuration.overrides import COMMAND_LINE, Setting
from orchestrator.errors import InputError
from workers.sampling import Sampling


def tree(config: type[Any], group: str) -> DictConfig:
    made = OmegaConf.create({group: OmegaConf.structured(config)})
    OmegaConf.set_struct(made, True)
    return made


def setting(key: str, value: Any) -> Setting:
    return Setting(key=key, values=(value,), line=f"{key}={value}", origin=COMMAND_LINE)


def config_of(key: str) -> type[Any]:
    group = key.partition(".")[0]
    return engine_kinds()["mlx_lm"].schema if group == "engine" else GROUP_SCHEMAS[group]


def set_and_get(key: str, value: Any) -> Any:
    config, group = config_of(key), key.partition(".")[0]
    made = tree(config, group)
    set_value(made, config, setting(key, value), value)
    plain = OmegaConf.to_container(OmegaConf.create({"found": OmegaConf.select(made, key)}), enum_to_str=True)
    assert isinstance(plain, dict)
    return plain["found"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("design.rounds", 7, 7),
        ("design.rounds", None, None),
        ("design.alpha", 1, 1.0),
        ("design.aa", False, False),
        ("design.metric", "ttft_s", "ttft_s"),
        ("design.deadlines.load_s", 3, 3.0),
        ("checkpoint.revision", 12345678, "12345678"),
        ("sampling.template_options.enable_thinking", False, False),
        ("sampling.template_options.a.b", 1, 1),
        ("sampling.template_options", {"a": [1]}, {"a": [1]}),
        ("engine.kv_bits", 4, 4),
    ],
)
def test_what_fits_is_set(key: str, value: Any, expected: Any) -> None:
    assert set_and_get(key, value) == expected


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("design.round", 9, ["did you mean rounds?", "alpha, margin"]),
        (
            "design.deadlines.lod_s",
            9,
            ["design.deadlines.lod_s is not a setting", "did you mean load_s?", "teardown_s"],
        ),
        ("design.deadlines", {"lod_s": 9}, ["design.deadlines.lod_s is not a setting", "did you mean load_s?"]),
        ("design.rounds.x", 9, ["design.rounds.x is not a setting", "no keys below it"]),
        ("gate.cooldown", 9, ["did you mean cooldown_s?", "thermal_level_max"]),
        ("workload.maxtokens", 9, ["did you mean max_tokens?", "document_tokens"]),
        ("sampling.temp", 9, ["did you mean temperature?", "top_p"]),
        ("checkpoint.revison", 9, ["did you mean revision?", "hub_id"]),
        ("db.uri", "x", ["did you mean url?"]),
        ("engine._target_", "os.system", ["engine._target_ is not a setting"]),
        ("workload.depths", 4096, ["takes a list of whole numbers, not 4096"]),
        ("workload.depths", ["deep"], ["takes a list of whole numbers, not ['deep']"]),
        ("design.rounds", "many", ["takes a whole number or null, not 'many'"]),
        ("design.rounds", 1.5, ["takes a whole number or null, not 1.5"]),
        ("design.rounds", [1], ["takes a whole number or null, not [1]"]),
        ("design.aa", 7.5, ["takes true or false, not 7.5"]),
        ("design.aa", 1, ["takes true or false, not 1"]),
        ("design.aa", None, ["takes true or false, not null"]),
        ("design.metric", "speed", ["takes one of end_to_end_tps, decode_tps, prefill_tps, ttft_s, not 'speed'"]),
        ("design.metric", None, ["takes one of end_to_end_tps"]),
        ("design.deadlines", 5, ["takes settings: {load_s, first_token_s"]),
        ("sampling.template_options", 5, ["takes settings: {key: value}, not 5"]),
        ("sampling.temperature", "warm", ["takes a number, not 'warm'"]),
        ("sampling.temperature", True, ["takes a number, not True"]),
        ("checkpoint.path", {"a": 1}, ["takes text or null"]),
    ],
)
def test_what_does_not_fit_says_what_would(key: str, value: Any, parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        set_and_get(key, value)
    message = str(caught.value)
    assert "\n" not in message
    for part in [*parts, f"{key}={value}", key.rpartition(".")[0]]:
        assert part in message


@pytest.mark.parametrize(
    ("config", "values", "key", "part"),
    [
        (schema.DesignConfig, {"rounds": 0}, "rounds", "is 0: give a value from 1 to 100,000"),
        (schema.DesignConfig, {"alpha": 0.0}, "alpha", "between 0 and 1"),
        (schema.DesignConfig, {"alpha": 1.5}, "alpha", "between 0 and 1"),
        (schema.DesignConfig, {"alpha": float("nan")}, "alpha", "finite"),
        (schema.DesignConfig, {"margin": float("inf")}, "margin", "finite"),
        (schema.DesignConfig, {"margin": -0.01}, "margin", "at least 0"),
        (schema.DesignConfig, {"seed": -1}, "seed", "at least 0"),
        (schema.DesignConfig, {"warmups": -1}, "warmups", "from 0 to 100"),
        (schema.DesignConfig, {"deadlines": {"load_s": 0.0}}, "deadlines.load_s", "more than 0"),
        (schema.GateConfig, {"cooldown_s": -1.0}, "cooldown_s", "at least 0"),
        (schema.GateConfig, {"thermal_level_max": -1}, "thermal_level_max", "from 0 to 4"),
        (schema.WorkloadConfig, {"max_tokens": 0}, "max_tokens", "from 1 to 1,000,000"),
        (schema.WorkloadConfig, {"max_tokens": "???"}, "max_tokens", "is missing; it takes a whole number"),
        (schema.WorkloadConfig, {"kind": "chat"}, "kind", "prompts, two_turns, depths"),
        (schema.WorkloadConfig, {"depths": []}, "depths", "is []: give 1 to 32 ascending numbers from 0 to 1,000,000"),
        (schema.WorkloadConfig, {"depths": [4096, 0]}, "depths", "ascending"),
        (schema.WorkloadConfig, {"depths": [0, 0]}, "depths", "ascending"),
        (schema.WorkloadConfig, {"depths": [-1, 5]}, "depths", "from 0 to"),
        (schema.WorkloadConfig, {"depths": list(range(33))}, "depths", "1 to 32"),
        (schema.WorkloadConfig, {"document_tokens": 5}, "document_tokens", "from 100 to"),
        (Sampling, {"temperature": -0.1}, "temperature", "at least 0"),
        (Sampling, {"top_p": 0.0}, "top_p", "above 0"),
        (Sampling, {"min_p": 1.1}, "min_p", "from 0 to 1"),
        (schema.CheckpointConfig, {"source": "???"}, "source", "hub, local, gguf, imported, dummy"),
        (schema.CheckpointConfig, {"dtype": "int8"}, "dtype", "float32, bfloat16"),
        (engine_kinds()["mlx_lm"].schema, {"kv_bits": 7}, "kv_bits", "2, 3, 4"),
        (engine_kinds()["mlx_lm"].schema, {"kv_bits": 4, "max_kv_size": 512}, "kv_bits", "excludes max_kv_size"),
        (engine_kinds()["mlx_lm_draft"].schema, {"block_size": 1}, "block_size", "at least 2"),
        (engine_kinds()["simulated"].schema, {"block_size": 0}, "block_size", "at least 1"),
        (engine_kinds()["simulated"].schema, {"drift": "weird"}, "drift", "saturating"),
        (engine_kinds()["simulated"].schema, {"fault": "tired"}, "fault", "segfault"),
        (engine_kinds()["simulated"].schema, {"acceptance": 1.5}, "acceptance", "from 0 to 1"),
        (engine_kinds()["simulated"].schema, {"effect": 0.0}, "effect", "more than 0"),
    ],
)
def test_values_out_of_their_limits_are_named(config: type[Any], values: dict[str, Any], key: str, part: str) -> None:
    ((found, problem),) = all_problems(config, values)
    assert found == key
    assert part in problem


@pytest.mark.parametrize("config", [*GROUP_SCHEMAS.values(), *(kind.schema for kind in engine_kinds().values())])
def test_the_schemas_own_defaults_are_within_their_limits(config: type[Any]) -> None:
    values = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    assert isinstance(values, dict)
    named = {str(key): value for key, value in values.items()}
    assert [problem for problem in all_problems(config, named) if "is missing" not in problem[1]] == []


@given(st.sampled_from(sorted(GROUP_SCHEMAS)), st.text(min_size=1, max_size=20))
def test_only_what_the_schema_has_is_a_key(group: str, key: str) -> None:
    known = set(GROUP_SCHEMAS[group].__dataclass_fields__) - {"_target_"}
    name = key.split(".")[0]
    assert not has_key(GROUP_SCHEMAS[group], key) or name in known
