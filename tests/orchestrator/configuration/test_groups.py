"""The user's own folder: its groups work as the shipped ones do, and what is wrong in it is said with its file."""

import json
from pathlib import Path

import pytest

from conf.store import GROUP_SCHEMAS
from orchestrator.configuration.groups import Parts
from tests.orchestrator.composing import names, plan_of, refusal, write

QUICK = "workload=quick"


def test_a_file_needs_nothing_but_its_settings(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint/mine.yaml", "source: hub\nhub_id: me/model-4bit\nbits: 4\ndraft: small")
    write(tmp_path, "checkpoint/small.yaml", "source: hub\nhub_id: me/small")
    write(tmp_path, "engine/wide.yaml", "_target_: workers.engines.mlx_lm_draft.MlxLmDraft\nblock_size: 9")
    write(tmp_path, "sampling/warm.yaml", "temperature: 0.9")
    write(tmp_path, "design/long.yaml", "rounds: 40\ndeadlines: {load_s: 10}")
    write(tmp_path, "gate/cool.yaml", "cooldown_s: 3")
    write(tmp_path, "db/lab.yaml", "url: sqlite:////lab.db")
    own = ["checkpoint=mine", "engine=wide", "sampling=warm", "design=long", "gate=cool", "db=lab", QUICK]
    plan = plan_of(*own, config_dir=tmp_path)
    (arm,) = plan.arms
    assert (arm.name, arm.checkpoint["name"], arm.engine["name"]) == ("mine", "mine", "wide")
    assert (arm.engine["block_size"], arm.engine["prefill_step_size"]) == (9, 512)
    assert arm.draft is not None
    assert arm.draft["hub_id"] == "me/small"
    assert (plan.design.rounds, plan.design.deadlines.load_s, plan.design.deadlines.total_s) == (40, 10.0, 3600.0)
    assert plan.gate.cooldown_s == 3.0


def test_shipped_options_stay_and_can_be_built_on(tmp_path: Path) -> None:
    write(tmp_path, "engine/wide.yaml", "defaults:\n  - mlx_lm_draft\n  - _self_\nblock_size: 7")
    plan = plan_of("engine=mlx_lm,wide", "engine.draft=smollm2-4bit", QUICK, config_dir=tmp_path)
    assert [arm.name for arm in plan.arms] == ["mlx_lm", "wide"]
    assert plan.arms[1].engine["block_size"] == 7


def test_the_users_option_wins_over_a_shipped_one_of_its_name_and_the_plan_reports_it(tmp_path: Path) -> None:
    write(tmp_path, "gate/default.yaml", "cooldown_s: 7")
    plan = plan_of(QUICK, config_dir=tmp_path)
    assert plan.gate.cooldown_s == 7.0
    assert f"gate/default is {tmp_path / 'gate/default.yaml'}, not the shipped one" in plan.notes


def test_own_options_are_globbed_and_listed_with_the_shipped_ones(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint/zz-4bit.yaml", "source: dummy\nshape: tiny")
    write(tmp_path, "checkpoint/zz-8bit.yaml", "source: dummy\nshape: tiny\nbits: 8")
    assert names("checkpoint=glob(zz*)", QUICK, config_dir=tmp_path) == ["zz-4bit", "zz-8bit"]
    message = refusal("checkpoint=zz-5bit", config_dir=tmp_path)
    assert "zz-4bit, zz-8bit" in message
    assert "smollm2-4bit" in message


def test_options_may_lie_in_folders(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint/lab/a.yaml", "source: dummy\nshape: tiny")
    (arm,) = plan_of("checkpoint=lab/a", QUICK, config_dir=tmp_path).arms
    assert arm.checkpoint["name"] == "lab/a"


def test_the_users_root_may_choose_other_defaults(tmp_path: Path) -> None:
    groups = "".join(
        f"  - {group}: {option}\n"
        for group, option in {
            "checkpoint": "smollm2-4bit",
            "engine": "mlx_lm",
            "workload": "quick",
            "sampling": "sampled",
            "design": "quick",
            "gate": "none",
            "db": "default",
        }.items()
    )
    write(tmp_path, "config.yaml", f"defaults:\n  - /schema/root@_global_\n{groups}  - _self_\nexperiment: lab\n")
    write(tmp_path, "sampling/other.yaml", "top_k: 5")
    plan = plan_of(config_dir=tmp_path)
    assert (plan.experiment, plan.arms[0].sampling["name"], plan.design.rounds) == ("lab", "sampled", 8)
    write(tmp_path, "config.yaml", "defaults:\n  - engine: mlx_lm\n  - _self_\n")
    assert "lacks checkpoint, workload" in refusal(config_dir=tmp_path)


def test_paths_in_yaml_start_at_their_configuration_folder(tmp_path: Path) -> None:
    write(tmp_path, "prompts/mine.jsonl", json.dumps({"messages": [{"role": "user", "content": "Hm?"}]}))
    write(tmp_path, "workload/mine.yaml", "kind: prompts\nfile: prompts/mine.jsonl\nmax_tokens: 5")
    write(tmp_path, "weights/readme.md", "here")
    write(tmp_path, "checkpoint/mine.yaml", "source: local\npath: weights")
    plan = plan_of("workload=mine", "checkpoint=mine", config_dir=tmp_path)
    assert plan.prompts[0].turns[0][0]["content"] == "Hm?"
    assert plan.arms[0].checkpoint["path"] == str(tmp_path / "weights")


def test_references_within_a_group_are_resolved_and_others_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_MODEL", "me/model")
    write(tmp_path, "checkpoint/mine.yaml", "source: hub\nhub_id: ${oc.env:LAB_MODEL}\nrevision: r${.bits}\nbits: 4")
    swept = plan_of("checkpoint=mine", "checkpoint.bits=4,8", QUICK, config_dir=tmp_path).arms
    assert [(arm.checkpoint["hub_id"], arm.checkpoint["revision"]) for arm in swept] == [
        ("me/model", "r4"),
        ("me/model", "r8"),
    ]
    write(tmp_path, "engine/mine.yaml", "defaults: [mlx_lm, _self_]\nkv_bits: ${checkpoint.bits}")
    message = refusal("engine=mine", QUICK, config_dir=tmp_path)
    assert "engine/mine.yaml" in message
    assert "within its own group" in message


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("checkpoint/mine", "surce: hub", ["checkpoint.surce", "did you mean source?", "hub_id"]),
        ("checkpoint/mine", "source: cloud", ["checkpoint.source", "hub, local, gguf", "'cloud'"]),
        ("checkpoint/mine", "source: hub\nbits: four", ["checkpoint.bits", "a whole number or null", "'four'"]),
        ("checkpoint/mine", "bits: 4", ["checkpoint.source is missing", "hub, local, gguf"]),
        ("checkpoint/mine", "source: hub\nhub_id: ???", ["source hub needs hub_id"]),
        ("checkpoint/mine", "source: hub\nhub_id: model", ["'model'", "owner/model"]),
        ("checkpoint/mine", "source: hub\n  x: [", ["mine.yaml", "line 2"]),
        ("checkpoint/mine", "- a\n- b", ["mine.yaml", "key: value"]),
        ("checkpoint/mine", "", ["checkpoint.source is missing"]),
        (
            "checkpoint/mine",
            "defaults: [/schema/checkpoint@_here_, _self_]\nsurce: hub",
            ["checkpoint.surce", "did you mean source?"],
        ),
        (
            "checkpoint/mine",
            "defaults: [/schema/checkpoint@_here_, _self_]\nsource: hub\nbits: four",
            ["checkpoint.bits", "a whole number or null", "'four'"],
        ),
        ("checkpoint/mine", "defaults: [nothing, _self_]\nsource: hub", ["nothing"]),
        ("design/mine", "defaults: [/schema/design@_here_, _self_]\ndeadlines: {lod_s: 3}", ["did you mean load_s?"]),
        ("engine/mine", "block_size: 4", ["begin with `defaults: [mlx_lm_draft, _self_]`", "or name `_target_`"]),
        ("engine/mine", "kv_bits: 4", ["begin with `defaults: [mlx_lm, _self_]`"]),
        ("engine/mine", "4: 4", ["begin with `defaults: [mlx_lm, _self_]`"]),
        (
            "engine/mine",
            "defaults: [/schema/engine/mlx_lm@_here_, _self_]\n_target_: os.system",
            ["`_target_: os.system` is not an engine"],
        ),
        ("engine/mine", "defaults: [/schema/engine/mlx_lm@_here_, _self_]\nkv_bits: 4", ["or name `_target_`"]),
        (
            "engine/mine",
            "_target_: os.system",
            ["`_target_: os.system` is not an engine", "workers.engines.mlx_lm.MlxLm"],
        ),
        (
            "engine/mine",
            "_target_: workers.engines.mlx_lm_draft.MlxLmDraft\nblocksize: 4",
            ["engine.blocksize", "did you mean block_size?"],
        ),
        ("engine/mine", "defaults: [mlx_lm, _self_]\nblock_size: 4", ["engine.block_size", "prefix_cache"]),
        ("design/mine", "alpha: null", ["design.alpha takes a number, not null"]),
        ("design/mine", "rounds: 0", ["design.rounds is 0", "from 1 to"]),
        ("design/mine", "deadlines: {lod_s: 3}", ["design.deadlines.lod_s", "did you mean load_s?"]),
        ("design/mine", "metric: speed", ["design.metric", "ttft_s"]),
        ("workload/mine", "kind: prompts\nfile: x.jsonl", ["workload.max_tokens is missing"]),
        ("workload/mine", "kind: chat\nmax_tokens: 4", ["workload.kind is chat", "two_turns"]),
    ],
)
def test_a_mistake_in_a_file_names_the_file_the_key_and_what_is_valid(
    tmp_path: Path, name: str, text: str, parts: list[str]
) -> None:
    write(tmp_path, f"{name}.yaml", text)
    group, option = name.split("/")
    message = refusal(f"{group}={option}", *([] if group == "workload" else [QUICK]), config_dir=tmp_path)
    for part in [*parts, "mine"]:
        assert part in message


def test_an_engine_without_a_class_hears_no_list_of_classes(tmp_path: Path) -> None:
    write(tmp_path, "engine/mine.yaml", "block_size: 4")
    assert "workers.engines" not in refusal("engine=mine", QUICK, config_dir=tmp_path)


def test_what_a_value_was_not_is_stated_only_where_it_is_known(tmp_path: Path) -> None:
    write(tmp_path, "sampling/mine.yaml", "template_options: 5")
    message = refusal("sampling=mine", QUICK, config_dir=tmp_path)
    assert message.endswith("sampling.template_options takes settings: {key: value}")


@pytest.mark.parametrize("file", ["checkpoint/mine.yaml", "checkpoint/base.yaml", "config.yaml"])
def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path, file: str) -> None:
    write(tmp_path, "checkpoint/mine.yaml", "defaults: [base, _self_]\nbits: 4")
    write(tmp_path, "checkpoint/base.yaml", "source: dummy\nshape: tiny")
    (tmp_path / "checkpoint/another.yaml").write_bytes("# thé".encode("latin-1"))  # not asked for, not named
    (tmp_path / file).write_bytes(b"#\n" * 9000 + "# café\nsource: dummy\n".encode("latin-1"))
    message = refusal("checkpoint=mine", QUICK, config_dir=tmp_path)
    assert message == f"{tmp_path / file}: not UTF-8; save the file as UTF-8"


def test_a_folder_that_is_none_or_holds_no_group_is_refused(tmp_path: Path) -> None:
    assert "no such folder" in refusal(config_dir=tmp_path / "absent")
    message = refusal(config_dir=tmp_path)
    assert "holds no group" in message
    assert all(group in message for group in GROUP_SCHEMAS)


def test_a_folder_with_spaces_and_quotes_in_its_name_works(tmp_path: Path) -> None:
    folder = write(tmp_path / "it's my, lab", "sampling/warm.yaml", "temperature: 0.9")
    assert plan_of("sampling=warm", QUICK, config_dir=folder).arms[0].sampling["temperature"] == 0.9


def test_options_of_what_is_no_group_are_none() -> None:
    assert Parts().options("nothing") == []
