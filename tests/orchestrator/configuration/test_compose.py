"""Overrides into a plan: arms and their names, the control, the design; and what is refused, in one line."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.configuration.compose import db_url, make_plan
from orchestrator.plan import dump, load
from tests.orchestrator.composing import names, plan_of, refusal, write

QUICK = "workload=quick"


# ---- arms ----


def test_the_products_equal_arms_are_one_and_the_plan_reports_it() -> None:
    plan = plan_of(
        "checkpoint=smollm2-4bit,smollm2-8bit", "engine=mlx_lm,mlx_lm_draft", "engine.block_size=2,4,8", QUICK
    )
    assert [arm.name for arm in plan.arms] == [
        "smollm2-4bit",
        "smollm2-4bit mlx_lm_draft block_size=2",
        "smollm2-4bit mlx_lm_draft block_size=4",
        "smollm2-4bit mlx_lm_draft block_size=8",
        "smollm2-8bit",
        "smollm2-8bit mlx_lm_draft block_size=2",
        "smollm2-8bit mlx_lm_draft block_size=4",
        "smollm2-8bit mlx_lm_draft block_size=8",
    ]
    assert "engine.block_size does not apply to mlx_lm: 6 arms merged into 2" in plan.notes
    assert plan.control == "smollm2-4bit"


def test_an_arm_holds_its_resolved_configuration() -> None:
    plan = plan_of("checkpoint=smollm2-8bit", "engine=mlx_lm_draft", "engine.block_size=3", "sampling=sampled", QUICK)
    (arm,) = plan.arms
    assert arm.engine == {
        "_target_": "workers.engines.mlx_lm_draft.MlxLmDraft",
        "name": "mlx_lm_draft",
        "python": None,
        "environment": {},
        "draft": "smollm2-4bit",
        "block_size": 3,
        "prefill_step_size": 512,
        "prefix_cache": True,
    }
    assert (arm.checkpoint["name"], arm.checkpoint["source"], arm.checkpoint["bits"]) == ("smollm2-8bit", "imported", 8)
    assert (arm.sampling["temperature"], arm.sampling["top_p"], arm.sampling["top_k"]) == (0.6, 0.95, 20)
    assert arm.draft is not None
    assert (arm.draft["name"], arm.draft["bits"]) == ("smollm2-4bit", 4)


def test_a_fixed_setting_that_one_engine_lacks_is_noted_and_merges_nothing() -> None:
    plan = plan_of("engine=mlx_lm,mlx_lm_draft", "engine.block_size=6", QUICK)
    assert len(plan.arms) == 2
    assert "engine.block_size does not apply to mlx_lm, which ignores it" in plan.notes


def test_a_value_listed_twice_is_one_arm_and_noted() -> None:
    plan = plan_of("engine=mlx_lm_draft", "engine.block_size=2,4,2", QUICK)
    assert [arm.engine["block_size"] for arm in plan.arms] == [2, 4]
    assert "1 of 3 arms equal another and were merged into it" in plan.notes


def test_a_draft_named_in_two_ways_is_one_arm() -> None:
    assert len(names("checkpoint=smollm2-8bit", "engine=mlx_lm_draft", "engine.draft=null,smollm2-4bit", QUICK)) == 1


def test_what_a_checkpoint_proposes_as_draft_is_no_part_of_a_plain_arm() -> None:
    plan = plan_of("engine=mlx_lm,mlx_lm_draft", "checkpoint.draft=smollm2-4bit,smollm2-8bit", QUICK)
    assert [arm.name for arm in plan.arms] == [
        "mlx_lm",
        "mlx_lm_draft draft=smollm2-4bit",
        "mlx_lm_draft draft=smollm2-8bit",
    ]
    assert {arm.checkpoint["draft"] for arm in plan.arms} == {None}


def test_the_first_varies_slowest_as_in_hydras_own_product() -> None:
    assert names("engine=simulated", "engine.effect=1,2", "engine.noise=0,0.5", QUICK) == [
        "effect=1 noise=0",
        "effect=1 noise=0.5",
        "effect=2 noise=0",
        "effect=2 noise=0.5",
    ]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["checkpoint=smollm2-8bit"], ["smollm2-8bit"]),
        (["engine=mlx_lm,mlx_lm_draft"], ["mlx_lm", "mlx_lm_draft"]),
        (["sampling=greedy,sampled"], ["greedy", "sampled"]),
        (["sampling.temperature=0.0,0.7"], ["temperature=0", "temperature=0.7"]),
        (["engine.prefix_cache=true,false"], ["prefix_cache=true", "prefix_cache=false"]),
        (["engine.kv_bits=null,4"], ["kv_bits=null", "kv_bits=4"]),
        (["checkpoint=glob(smollm2*bit)"], ["smollm2-4bit", "smollm2-8bit"]),
        (
            ["sampling.template_options={thinking:true},{thinking:false}"],
            ["thinking=true", "thinking=false"],
        ),
        (
            ["checkpoint=smollm2-8bit,smollm2-4bit", "sampling=greedy,sampled"],
            ["smollm2-8bit greedy", "smollm2-8bit sampled", "smollm2-4bit greedy", "smollm2-4bit sampled"],
        ),
        (
            ["checkpoint=qwen3-8b-4bit", 'checkpoint.hub_id=mlx-community/Qwen3-8B-4bit,"me/Mine"'],
            ["hub_id=Qwen3-8B-4bit", "hub_id=Mine"],
        ),
    ],
)
def test_names_are_what_differs(overrides: list[str], expected: list[str]) -> None:
    assert names(*overrides, QUICK) == expected


def test_names_that_would_be_equal_say_more(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint/a.yaml", "source: hub\nhub_id: one/model")
    assert names("checkpoint=a", "checkpoint.hub_id=one/model,two/model", QUICK, config_dir=tmp_path) == [
        "hub_id=one/model",
        "hub_id=two/model",
    ]
    urls = "engine.url=http://127.0.0.1:8080/v1,http://127.0.0.1:8081/v1"
    assert names("engine=openai_http", urls, QUICK) == ["url=127.0.0.1:8080/v1", "url=127.0.0.1:8081/v1"]
    assert names("sampling.temperature=0.7000001,0.7000002", QUICK) == [
        "temperature=0.7000001",
        "temperature=0.7000002",
    ]


def environment(folder: Path, **versions: str) -> Path:
    """A virtual environment as far as files go; its interpreter ends at once, so that whoever runs it fails."""
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for name, version in versions.items():
        about = site / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 9\n")
    python.chmod(0o755)
    return python


def test_interpreters_are_named_by_their_environments_and_the_versions_that_differ(tmp_path: Path) -> None:
    old = environment(tmp_path / "old", mlx="0.32.3", mlx_lm="0.31.3", numpy="2.0")
    new = environment(tmp_path / "new", mlx="0.32.3", mlx_lm="0.32.2", numpy="2.0")
    same = environment(tmp_path / "other" / "new", mlx="0.32.3", mlx_lm="0.32.2", numpy="2.0")
    assert names(f"engine.python={old},{new}", QUICK) == ["python=old mlx-lm=0.31.3", "python=new mlx-lm=0.32.2"]
    assert names(f"engine.python={new},{same}", QUICK) == [
        f"python={tmp_path.name}/new",
        "python=other/new",
    ]
    bare = tmp_path / "bare" / "bin" / "python"
    bare.parent.mkdir(parents=True)
    bare.write_text("#!/bin/sh\n")
    bare.chmod(0o755)
    assert names(f"engine.python={old},{bare}", QUICK) == ["python=old", "python=bare"]


def test_names_need_no_quoting_and_fit_a_table() -> None:
    found = names("sweep=block_size") + names("sweep=quantisation_x_speculation")
    assert all(not set(name) & set("'\"`;%\\(){}[]|,") for name in found)
    assert max(map(len, found)) <= 40


def test_a_mapping_set_for_one_arm_does_not_leak_into_the_next() -> None:
    plan = plan_of("sampling.template_options={a:1},{b:2}", QUICK)
    assert [arm.sampling["template_options"] for arm in plan.arms] == [{"a": 1}, {"b": 2}]


# ---- control ----


def test_the_control_is_the_first_or_the_one_named_in_whole_or_in_part() -> None:
    swept = ["checkpoint=smollm2-4bit,smollm2-8bit", "engine=mlx_lm,mlx_lm_draft", QUICK]
    assert plan_of(*swept).control == "smollm2-4bit"
    assert plan_of(*swept, "control=smollm2-8bit").control == "smollm2-8bit"
    assert plan_of(*swept, "control=8bit mlx").control == "smollm2-8bit mlx_lm_draft"
    assert plan_of(*swept, "control='smollm2-8bit mlx_lm_draft'").control == "smollm2-8bit mlx_lm_draft"
    assert (
        plan_of("engine=mlx_lm_draft", "engine.block_size=2,4", "control=block_size=4", QUICK).control == "block_size=4"
    )


@pytest.mark.parametrize("wanted", ["none", "mlx_lm_draft", "smollm2-4bit,smollm2-8bit"])
def test_a_control_that_is_no_one_arm_lists_the_arms(wanted: str) -> None:
    message = refusal("checkpoint=smollm2-4bit,smollm2-8bit", "engine=mlx_lm,mlx_lm_draft", f"control={wanted}", QUICK)
    assert f"control={wanted}" in message
    assert "smollm2-8bit mlx_lm_draft" in message


# ---- what is refused ----


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["engine=mlx_lmm"], ["'engine=mlx_lmm'", "did you mean mlx_lm?", "mlx_lm, mlx_lm_draft, "]),
        (["checkpoint=smollm2-8bits"], ["smollm2-8bits", "did you mean smollm2-8bit?", "qwen3-8b-4bit"]),
        (["workload=quik"], ["'quik'", "did you mean quick?", "five_prompts"]),
        (["sweep=block"], ["'block'", "block_size", "quickstart"]),
        (["design=slow"], ["'slow'", "default, quick"]),
        (["engin=mlx_lm"], ["'engin'", "did you mean engine?", "control, experiment"]),
        (["engine/x=1"], ["'engine/x=1'", "did you mean engine?"]),
        (["checkpont.bits=4"], ["'checkpont'", "did you mean checkpoint?"]),
        (["rounds=6"], ["'rounds=6'", "did you mean design.rounds?", "control, experiment"]),
        (["seed=4"], ["did you mean workload.seed or design.seed?"]),
        (["max_tokens=8"], ["did you mean workload.max_tokens?"]),
        (["block_size=2,4"], ["did you mean engine.block_size?"]),
        (["temperature=0.7"], ["did you mean sampling.temperature?"]),
        (["temprature=0.7"], ["did you mean sampling.temperature?"]),
        (["load_s=9"], ["did you mean design.deadlines.load_s?"]),
        (["deadlines.load_s=9"], ["did you mean design.deadlines.load_s?"]),
        (["design.round=9"], ["'design.round=9'", "did you mean rounds?", "alpha"]),
        (["design.deadlines={lod_s:9}"], ["design.deadlines.lod_s", "did you mean load_s?"]),
        (["engine._target_=os.system"], ["no chosen engine has engine._target_"]),
        (["design.deadlines={load_s:0}"], ["'design.deadlines={load_s:0}'", "design.deadlines.load_s is 0"]),
        (
            ["engine=simulated", "engine.effect=range(1,101)", "design.rounds=90000"],
            ["100 arms in 90000 rounds", "2,000,000"],
        ),
        (["design.rounds=many"], ["design.rounds", "a whole number or null", "'many'"]),
        (["engine=mlx_lm_draft", "engine.block_size=1"], ["engine.block_size is 1", "at least 2"]),
        (["checkpoint=simulated"], ["checkpoint simulated has no weights", "smollm2-8bit"]),
        (["engine=simulated,mlx_lm"], ["simulated measures nothing", "two runs"]),
        (["checkpoint=llama-3.2-1b-4bit", "engine=mlx_lm_draft"], ["llama-3.2-1b-4bit names none", "engine.draft"]),
        (["engine=mlx_lm_draft", "engine.draft=smolm2"], ["engine.draft=smolm2", "did you mean smollm2-"]),
        (["checkpoint.source=local", "checkpoint.path=/no/such"], ["/no/such", "checkpoint.path"]),
        (["checkpoint.source=hub"], ["source hub needs hub_id"]),
        (["checkpoint.source=local"], ["source local needs path"]),
        (["checkpoint=dummy-tiny", "checkpoint.shape=tny"], ["'tny'", "did you mean tiny?"]),
        (["experiment=[a]"], ["experiment=[a]", "takes a name"]),
        (["experiment=a,b"], ["cannot be swept", "one experiment"]),
        (["design=default,quick"], ["cannot be swept", "different designs"]),
        (["design.seed=1,2"], ["'design.seed=1,2'", "cannot be swept", "different designs"]),
        (["gate.cooldown_s=1,2"], ["cannot be swept", "different conditions"]),
        (["db.url=a,b"], ["cannot be swept", "one database"]),
        (["sweep=quickstart,block_size"], ["cannot be swept", "one stored experiment"]),
        (["sweep.arms=[]"], ["changed in its file"]),
        (["workload.max_tokens=1,2"], ["cannot be swept", "workload=a,b"]),
        (["workload.document_tokens=500"], ["document_tokens", "two_turns"]),
        (["workload=two_turns", "workload.file=x.jsonl"], ["workload.file=x.jsonl", "workload=prompts"]),
        (["workload=quick", "workload.depths=[0,9]"], ["workload.depths=[0,9]", "belongs to workload=depths"]),
        (["workload=depths", "workload.file=absent.txt"], ["absent.txt", "a text file: workload.file=book.txt"]),
        (
            ["workload=quick,prompts", "workload.file=x.jsonl"],
            ["workload.file=x.jsonl", "several workloads (quick, prompts)"],
        ),
        (["workload=prompts"], ["names no prompt file", "workload.file=my.jsonl"]),
        (["workload=prompts", "workload.file=absent.jsonl"], ["absent.jsonl", "workload.file=my.jsonl"]),
        (["engine.block_size=range(2,200)", "engine=mlx_lm_draft", "engine.prefill_step_size=range(1,99)"], ["19404"]),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_the_way_out(overrides: list[str], parts: list[str]) -> None:
    message = refusal(*overrides) if any("workload" in each for each in overrides) else refusal(*overrides, QUICK)
    for part in parts:
        assert part in message


def test_a_setting_that_no_chosen_engine_has_lists_what_each_has() -> None:
    message = refusal("engine=mlx_lm,mlx_lm_draft", "engine.blocksize=2,4", QUICK)
    assert "'engine.blocksize=2,4'" in message
    assert "did you mean block_size?" in message
    assert "mlx_lm has name, python, environment, prefill_step_size" in message
    assert "mlx_lm_draft has name, python, environment, draft, block_size" in message


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("engine.copy_drafts=true", "engine.copy_drafts; dflash, dflash_server, mtp have it: name one in engine="),
        ("engine.copy_draft=true", "did you mean copy_drafts? dflash, dflash_server, mtp have it: name one in engine="),
        ("engine.evidence.kind=x", "engine.evidence.kind; openai_http has it: name one in engine="),
        ("engine.blok_size=2", "did you mean block_size? mlx_lm_draft, "),
    ],
)
def test_a_setting_of_another_engine_names_the_engines_that_have_it(override: str, hint: str) -> None:
    message = refusal("engine=mlx_lm", override, QUICK)
    assert hint in message
    assert "prefill_step_size" not in message  # what the chosen engine has is no help here


def test_a_setting_of_the_chosen_engine_is_found_before_another_engines() -> None:
    assert "did you mean kv_bits? mlx_lm has name, " in refusal("engine=mlx_lm", "engine.kv_bit=4", QUICK)


# ---- the design ----


def test_null_rounds_are_eight_of_every_prompt_or_of_the_prompt_set() -> None:
    assert plan_of(QUICK).design.rounds == 24
    assert plan_of(QUICK, "design.interleave_by=workload").design.rounds == 8
    assert plan_of(QUICK, "design.rounds=9").design.rounds == 9
    assert plan_of(QUICK, "design.interleave_by=workload", "design.alpha=0.001").design.rounds == 11


@pytest.mark.parametrize(("alpha", "least"), [("0.05", 6), ("0.01", 8)])
def test_a_plan_that_cannot_reach_its_level_is_refused(alpha: str, least: int) -> None:
    message = refusal(QUICK, f"design.alpha={alpha}", f"design.rounds={least - 1}")
    assert f"design.rounds={least - 1}" in message
    assert f"at least {least} rounds" in message
    assert plan_of(QUICK, f"design.alpha={alpha}", f"design.rounds={least}").design.rounds == least


def test_classes_with_too_few_rounds_are_noted() -> None:
    notes = " ".join(plan_of(QUICK, "design=quick").notes)
    assert "class maths gets 2 rounds, class code gets 3 rounds, class prose gets 3 rounds: their rows" in notes
    assert "underpowered" in notes
    assert "underpowered" not in " ".join(plan_of(QUICK).notes)


def test_nothing_in_a_plan_is_left_to_choose() -> None:
    design = plan_of(QUICK).design
    assert (design.interleave_by, design.residency) == ("prompt", "resident")
    assert (design.metric, design.evidence, design.on_preflight_failure) == ("end_to_end_tps", "require", "stop")


def test_fewer_rounds_than_prompts_are_noted(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"messages": [{"role": "user", "content": f"Question {n}?"}]}) for n in range(8))
    file = tmp_path / "eight.jsonl"
    file.write_text(lines)
    notes = plan_of("workload=prompts", f"workload.file={file}", "design.rounds=6").notes
    assert "6 rounds leave 2 of 8 prompts out: one prompt per round" in notes


# ---- workloads ----


def test_several_workloads_are_joined_not_swept() -> None:
    plan = plan_of("workload=quick,two_turns_small", "workload.document_tokens=300")
    assert len(plan.arms) == 1
    assert [prompt.workload for prompt in plan.prompts] == ["quick", "quick", "quick", "two_turns_small"]
    assert [len(prompt.turns) for prompt in plan.prompts] == [1, 1, 1, 2]


def test_ids_that_clash_between_workloads_are_refused(tmp_path: Path) -> None:
    line = json.dumps({"id": "quick-code", "messages": [{"role": "user", "content": "?"}]})
    write(tmp_path, "prompts/mine.jsonl", line)
    write(tmp_path, "workload/mine.yaml", "kind: prompts\nfile: prompts/mine.jsonl\nmax_tokens: 5")
    message = refusal("workload=quick,mine", config_dir=tmp_path)
    assert "'quick-code'" in message
    assert "workload quick and in mine" in message


def test_a_file_on_the_command_line_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "mine.jsonl", json.dumps({"messages": [{"role": "user", "content": "Why?"}]}))
    (prompt,) = plan_of("workload=prompts", "workload.file=mine.jsonl", "workload.max_tokens=7").prompts
    assert prompt.turns == (({"role": "user", "content": "Why?"},),)
    assert prompt.max_tokens == 7


def test_a_file_of_the_same_name_in_the_working_directory_does_not_stand_in_for_a_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = plan_of(QUICK).workload_sha256
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "prompts/quick.jsonl", json.dumps({"messages": [{"role": "user", "content": "Why?"}]}))
    assert plan_of(QUICK).workload_sha256 == before


# ---- stored experiments ----


@pytest.mark.parametrize(
    ("sweep", "arms", "control"),
    [
        ("quickstart", ["smollm2-8bit", "smollm2-4bit", "smollm2-8bit mlx_lm_draft"], "smollm2-8bit"),
        ("block_size", ["mlx_lm", *(f"mlx_lm_draft block_size={n}" for n in (2, 4, 5, 8, 12, 16))], "mlx_lm"),
        (
            "drafter_quantisation",
            ["mlx_lm", "mlx_lm_draft draft=smollm2-4bit", "mlx_lm_draft draft=smollm2-8bit"],
            "mlx_lm",
        ),
        (
            "quantisation_x_speculation",
            ["smollm2-8bit", "smollm2-8bit mlx_lm_draft", "smollm2-4bit", "smollm2-4bit mlx_lm_draft"],
            "smollm2-8bit",
        ),
        (
            "short_vs_two_turns",
            ["mlx_lm", "mlx_lm_draft prefix_cache=true", "mlx_lm_draft prefix_cache=false"],
            "mlx_lm",
        ),
        (
            "verify_cost",
            ["block_size=1", "block_size=2", "block_size=4", "block_size=8", "block_size=16"],
            "block_size=1",
        ),
        (
            "sampling_temperature",
            [
                f"{engine} temperature={value}"
                for engine in ("mlx_lm", "mlx_lm_draft")
                for value in ("0", "0.3", "0.6", "1")
            ],
            "mlx_lm temperature=0",
        ),
    ],
)
def test_the_shipped_experiments_plan(sweep: str, arms: list[str], control: str) -> None:
    plan = plan_of(f"sweep={sweep}")
    assert [arm.name for arm in plan.arms] == arms
    assert (plan.control, plan.experiment, plan.command) == (control, sweep, (f"sweep={sweep}",))


def test_the_quickstart_is_the_quick_workload_with_its_draft() -> None:
    plan = plan_of("sweep=quickstart")
    assert (plan.design.rounds, plan.prompts[0].workload) == (8, "quick")
    assert [arm.draft and arm.draft["name"] for arm in plan.arms] == [None, None, "smollm2-4bit"]


def test_the_command_line_wins_over_an_arm_and_an_arm_over_the_common_overrides(tmp_path: Path) -> None:
    write(
        tmp_path,
        "sweep/mine.yaml",
        """
overrides: [engine=simulated, engine.noise=0.1, engine.effect=5, workload=quick, design.rounds=7, experiment=stored]
arms:
  - [engine.effect=1]
  - ["engine.effect=2,3", engine.noise=0.2]
""",
    )
    plan = plan_of("sweep=mine", config_dir=tmp_path)
    assert plan.command == ("--config-dir", str(tmp_path), "sweep=mine")  # a suggested command has to name it
    assert [(arm.engine["effect"], arm.engine["noise"]) for arm in plan.arms] == [(1.0, 0.1), (2.0, 0.2), (3.0, 0.2)]
    assert (plan.design.rounds, plan.experiment) == (7, "stored")
    plan = plan_of("sweep=mine", "engine.noise=0.3", "design.rounds=8", "experiment=now", config_dir=tmp_path)
    assert [(arm.engine["effect"], arm.engine["noise"]) for arm in plan.arms] == [(1.0, 0.3), (2.0, 0.3), (3.0, 0.3)]
    assert (plan.design.rounds, plan.experiment) == (8, "now")


def test_a_sweep_on_the_command_line_multiplies_the_stored_arms() -> None:
    plan = plan_of("sweep=quickstart", "sampling=greedy,sampled")
    assert len(plan.arms) == 6


def test_the_mac_variants_of_the_descriptions_plan() -> None:
    drafts = "engine.draft=qwen3-0.6b-4bit,qwen3-0.6b-8bit,qwen3-0.6b-bf16"
    assert len(names("sweep=block_size", "workload=five_prompts", "checkpoint=qwen3-8b-8bit")) == 7
    assert len(names("sweep=drafter_quantisation", "checkpoint=qwen3-8b-8bit", drafts)) == 4
    assert len(names("sweep=quantisation_x_speculation", "checkpoint=qwen3-8b-6bit,qwen3-8b-4bit")) == 4
    plan = plan_of("sweep=short_vs_two_turns", "checkpoint=qwen3-8b-4bit", "workload=five_prompts,two_turns")
    assert (len(plan.arms), len(plan.prompts)) == (3, 6)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("arms: [[workload=quick]]", ["'workload=quick'", "shared by all arms", "`overrides`"]),
        ("arms: [[engine=nothing]]", ["engine=nothing", "mlx_lm"]),
        ("overrides: [sweep=quickstart]", ["cannot name another"]),
        ("overrides: [+x=1]", ["+x=1", "nothing can be added"]),
        ("overides: []", ["sweep.overides", "did you mean overrides?"]),
        ("overrides: 5", ["sweep.overrides takes a list: [workload=quick]"]),
        ("overrides: design=quick", ["sweep.overrides takes a list: [design=quick]"]),
        ("overrides: {design: quick}", ["sweep.overrides takes a list: [design=quick]"]),
        ("overrides:\n- design: quick", ["each override in overrides is text: design=quick"]),
        ("overrides:\n- [design=quick]", ["each override in overrides is text: workload=quick"]),
        ("arms: engine=mlx_lm", ["sweep.arms takes a list of lists: [[engine=mlx_lm]]"]),
        ("arms:\n- engine=simulated", ["each entry of arms is a list: `- [engine=simulated]`"]),
        ("arms:\n- engine: simulated", ["each entry of arms is a list: `- [engine=simulated]`"]),
        ("arms:\n- engine.block_size=2,4", ['each entry of arms is a list: `- ["engine.block_size=2,4"]`']),
        ("arms:\n- [engine: simulated]", ["each override in arms is text: engine=simulated"]),
        (
            "defaults: [/schema/sweep@_here_, _self_]\narms:\n- engine=simulated",
            ["each entry of arms is a list: `- [engine=simulated]`"],
        ),
    ],
)
def test_a_broken_sweep_names_its_file(tmp_path: Path, text: str, parts: list[str]) -> None:
    write(tmp_path, "sweep/mine.yaml", text)
    message = refusal("sweep=mine", config_dir=tmp_path)
    for part in [*parts, "sweep/mine.yaml"]:
        assert part in message


# ---- frozen ----


def test_a_plan_survives_storing_and_later_edits_change_nothing(tmp_path: Path) -> None:
    write(tmp_path, "prompts/mine.jsonl", json.dumps({"messages": [{"role": "user", "content": "Before."}]}))
    write(tmp_path, "workload/mine.yaml", "kind: prompts\nfile: prompts/mine.jsonl\nmax_tokens: 5")
    write(tmp_path, "engine/mine.yaml", "_target_: workers.engines.simulated.Simulated\neffect: 2.0")
    plan = plan_of("engine=mine", "workload=mine", config_dir=tmp_path)
    stored, sha256 = dump(plan), plan.sha256
    write(tmp_path, "prompts/mine.jsonl", json.dumps({"messages": [{"role": "user", "content": "After."}]}))
    write(tmp_path, "engine/mine.yaml", "_target_: workers.engines.simulated.Simulated\neffect: 3.0")
    again = load(stored)
    assert (again, again.sha256, plan.sha256) == (plan, sha256, sha256)
    assert again.prompts[0].turns[0][0]["content"] == "Before."
    assert again.arms[0].engine["effect"] == 2.0
    assert plan_of("engine=mine", "workload=mine", config_dir=tmp_path).sha256 != sha256


def test_the_same_overrides_give_the_same_plan_and_arms_have_distinct_identities() -> None:
    overrides = ["engine=simulated", "engine.effect=1,2,3", QUICK]
    plan = plan_of(*overrides)
    assert plan.sha256 == plan_of(*overrides).sha256
    assert len({arm.config_sha256 for arm in plan.arms}) == 3


def test_a_plan_is_plain_json_all_through() -> None:
    plan = plan_of("engine=mlx_lm,mlx_lm_draft", "sampling.template_options={a:[1,{b:null}]}", QUICK)
    body = json.loads(dump(plan))
    assert body["arms"][0]["sampling"]["template_options"] == {"a": [1, {"b": None}]}
    assert json.loads(json.dumps(asdict(plan))) == body


def test_the_database_is_no_part_of_the_plan_and_its_password_is_not_kept() -> None:
    composed = make_plan([QUICK, "db.url=postgresql+psycopg://me:secret@host/lab"])
    assert composed.db_url == "postgresql+psycopg://me:secret@host/lab"
    assert "secret" not in dump(composed.plan)
    assert "db.url=postgresql+psycopg://***@host/lab" in composed.plan.command


def test_the_database_alone(tmp_path: Path) -> None:
    write(tmp_path, "db/lab.yaml", "url: sqlite:////data/lab.db")
    assert db_url() is None
    assert db_url(["db.url=sqlite:///x.db"]) == "sqlite:///x.db"
    assert db_url(["db=lab"], config_dir=tmp_path) == "sqlite:////data/lab.db"


def test_a_simulated_run_reports_it_in_its_checkpoint() -> None:
    plan = plan_of("engine=simulated", "engine.effect=1,2", QUICK)
    assert {arm.checkpoint["source"] for arm in plan.arms} == {"simulated"}
    assert {arm.draft for arm in plan.arms} == {None}
    named = plan_of("engine=simulated", "checkpoint=smollm2-8bit", "engine.acceptance=0.8", QUICK)
    assert named.arms[0].checkpoint["name"] == "smollm2-8bit"
    assert named.arms[0].engine["draft"] == "smollm2-4bit"


@pytest.mark.slow
def test_a_thousand_arms_plan() -> None:
    overrides = ["engine=simulated", "engine.block_size=range(1,1001)", "design.rounds=100"]
    assert len(make_plan(overrides).plan.arms) == 1000
