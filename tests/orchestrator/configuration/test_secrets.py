"""No plan holds a secret: it is stored, exported and shown."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from db.session import open_database
from orchestrator.configuration.compose import make_plan
from orchestrator.configuration.groups import Parts
from orchestrator.configuration.overrides import COMMAND_LINE, parse
from orchestrator.configuration.secrets import refuse_literals
from orchestrator.errors import InputError
from orchestrator.plan import Arm
from orchestrator.planning.weights import find_weights
from orchestrator.running.execution import crew_of
from orchestrator.running.recorder import create_run
from workers.machine.host import read_host
from workers.masking import KNOWN, mask

ARMS = ["engine=simulated", "checkpoint=simulated", "workload=quick"]
SERVER = ["engine=openai_http", "engine.model=m", "checkpoint=llama-3.2-1b-4bit", "workload=quick"]
KEY = "SECRETSECRET"


@pytest.fixture(autouse=True)
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", f"sk-{KEY}")
    monkeypatch.setenv("HF_TOKEN", f"hf_{KEY}")
    monkeypatch.setenv("LAB_WORD", f"word-{KEY}")
    monkeypatch.delenv("INTERLACE_NOT_SECRET", raising=False)


OPTIONS = {
    "engine": "openai_http",
    "checkpoint": "llama-3.2-1b-4bit",
    "sampling": "greedy",
    "db": "default",
    "design": "default",
}


@cache
def parts() -> Parts:
    made = Parts()
    made.load(list(OPTIONS.items()))
    return made


def resolved(*lines: str) -> dict[str, Any]:
    """The values of the group that these overrides belong to; all of one group."""
    settings = parse(lines, origin=COMMAND_LINE, options_of=lambda group: [])
    group = settings[0].group
    return parts().values((group, OPTIONS[group]), [(each, each.values[0]) for each in settings])


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("engine.environment={HF_TOKEN: '${oc.env:HF_TOKEN}'}", {"environment": {"HF_TOKEN": "${oc.env:HF_TOKEN}"}}),
        ("engine.environment={FOO: '${oc.env:LAB_WORD}'}", {"environment": {"FOO": "${oc.env:LAB_WORD}"}}),
        ("engine.environment={P: 'http://u:${oc.env:LAB_WORD}@p'}", None),
        ("engine.body={api_key: '${oc.env:MY_API_KEY}'}", {"body": {"api_key": "${oc.env:MY_API_KEY}"}}),
        ("engine.body={a: {b: ['${oc.env:LAB_WORD}']}}", {"body": {"a": {"b": ["${oc.env:LAB_WORD}"]}}}),
        ("engine.url='http://h/?api_key=${oc.env:MY_API_KEY}'", {"url": "http://h/?api_key=${oc.env:MY_API_KEY}"}),
        ("engine.url='http://u:${oc.env:LAB_WORD}@h:1'", {"url": "http://u:${oc.env:LAB_WORD}@h:1"}),
        ("engine.url='http://${oc.env:MY_API_KEY,none}@h:1'", {"url": "http://${oc.env:MY_API_KEY}@h:1"}),
    ],
)
def test_where_servers_are_reached_the_plan_holds_the_reference(line: str, kept: dict[str, object] | None) -> None:
    values = resolved(line)
    assert KEY not in repr(values)
    assert kept is None or kept.items() <= values.items()


@pytest.mark.parametrize(
    "lines",
    [
        ["engine.model=${oc.env:MY_API_KEY}"],
        ["engine.log_command='tail ${oc.env:HF_TOKEN}'"],
        ["engine.evidence={title: '${oc.env:MY_API_KEY}'}"],
        ["engine.first_token_s=${oc.env:MY_API_KEY}"],
        ["engine.model=${.environment.K}", "engine.environment={K: '${oc.env:LAB_WORD}'}"],
        ["checkpoint.hub_id='o/${oc.env:HF_TOKEN}'"],
        ["checkpoint.path=${oc.env:HF_TOKEN}"],
        ["sampling.template_options={k: '${oc.env:MY_API_KEY}'}"],
        ["db.url='sqlite:///${oc.env:MY_API_KEY}'"],
        ["design.seed=${oc.env:MY_API_KEY}"],
    ],
)
def test_what_is_a_setting_of_the_experiment_refers_to_no_secret(lines: list[str]) -> None:
    with pytest.raises(InputError, match=r"looks like a secret, and .* is stored, exported and shown") as refusal:
        resolved(*lines)
    assert KEY not in str(refusal.value)
    assert lines[0].partition("=")[0] in str(refusal.value)


@pytest.mark.parametrize(
    "setting",
    [
        {"body": {"api_key": "SECRETSECRET"}},
        {"body": {"extra": [{"access_token": "SECRETSECRET"}]}},
        {"url": "http://u:SECRETSECRET@h:1"},
        {"attach": "https://SECRETSECRET@h:1"},
        {"url": "http://h:1/?key=SECRETSECRET"},
        {"model": "sk-SECRETSECRET"},
        {"api_key_env": "sk-SECRETSECRET"},
        {"api_key_env": "hf_SECRETSECRET"},
        {"evidence": {"title": "hf_SECRETSECRET"}},
        {"log_command": "curl -H 'Authorization: Bearer SECRETSECRET' http://h"},
        {"log_command": "curl -u me:SECRETSECRET http://h"},
        {"log_command": "vllm logs --api-key SECRETSECRET"},
        {"log_command": "env API_TOKEN=SECRETSECRET logs"},
        {"environment": {"HTTPS_PROXY": "http://u:SECRETSECRET@p:1"}},
        {"environment": {"OPENAI_KEY": "SECRETSECRET"}},
        {"environment": {"TOKEN2": "SECRETSECRET"}},
        {"environment": {"MYTOKEN": "SECRETSECRET"}},
        {"environment": {"GITHUB_PAT_RO": "SECRETSECRET"}},
        {"environment": {"SLACK_WEBHOOK_URL": "https://hooks/SECRETSECRET"}},
        {"environment": {"SENTRY_DSN": "https://SECRETSECRET@s/1"}},
        {"environment": {"FOO": "sk-SECRETSECRET"}},
    ],
)
def test_a_literal_secret_is_refused_without_being_repeated(setting: dict[str, Any]) -> None:
    arm = Arm(name="a", checkpoint={}, engine={"name": "x"} | setting, sampling={}, draft=None)
    with pytest.raises(InputError, match=f"^engine.{next(iter(setting))}") as refusal:
        refuse_literals([arm])
    assert KEY not in str(refusal.value)


@pytest.mark.parametrize(
    "line",
    [
        "engine.body={api_key: SECRETSECRET}",
        "engine.environment={FOO: word-SECRETSECRET, BAR: '${oc.env:LAB_WORD}'}",  # the value of a reference
        "experiment=hf_SECRETSECRET",
        "experiment=${oc.env:MY_API_KEY}",
        "checkpoint.hub_id=hf_SECRETSECRET/x",
        "sampling.template_options={token: SECRETSECRET}",
        # refused for another reason, and not repeated all the same
        "engine.nonsense={api_key: SECRETSECRET}",
        "engine.body={api_key: SECRETSECRET",
        "nonsense.api_key=SECRETSECRET",
    ],
)
def test_no_refusal_of_a_plan_repeats_a_secret(line: str) -> None:
    with pytest.raises(InputError) as refusal:
        make_plan([*SERVER, line])
    assert KEY not in str(refusal.value)


def test_a_refusal_says_what_to_type() -> None:
    with pytest.raises(InputError) as refusal:
        make_plan([*ARMS, "engine.environment={MYTOKEN: SECRETSECRET}"])
    assert "engine.environment.MYTOKEN holds a secret" in str(refusal.value)
    assert "write ${oc.env:MYTOKEN}" in str(refusal.value)
    assert "INTERLACE_NOT_SECRET=engine.environment.MYTOKEN" in str(refusal.value)


@pytest.mark.parametrize("named", ["MYTOKEN", "engine.environment.MYTOKEN", "OTHER, MYTOKEN"])
def test_what_only_looks_like_a_secret_can_be_declared(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("INTERLACE_NOT_SECRET", named)
    plan = make_plan([*ARMS, "engine.environment={MYTOKEN: harmless-word}"]).plan
    assert plan.arms[0].engine["environment"] == {"MYTOKEN": "harmless-word"}


def test_a_secret_in_a_file_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    text = "defaults: [openai_http, _self_]\nbody: {api_key: SECRETSECRET}\nmodel: m\n"
    (tmp_path / "engine" / "mine.yaml").write_text(text, encoding="utf-8")
    lines = ["engine=mine", "checkpoint=llama-3.2-1b-4bit", "workload=quick"]
    with pytest.raises(InputError, match=r"engine\.body\.api_key holds a secret") as refusal:
        make_plan(lines, config_dir=tmp_path)
    assert KEY not in str(refusal.value)


def test_settings_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_THREADS", "4")
    threads = "OMP_NUM_THREADS: '${oc.env:LAB_THREADS}'"
    variables = f"{{{threads}, MAX_TOKENS: '100', HF_TOKEN_PATH: /root/token, LD_PRELOAD: /a.so}}"
    engine = make_plan([*ARMS, f"engine.environment={variables}"]).plan.arms[0].engine
    assert engine["environment"] == {
        "OMP_NUM_THREADS": "4",  # a number is a setting, and recorded
        "MAX_TOKENS": "100",
        "HF_TOKEN_PATH": "/root/token",
        "LD_PRELOAD": "/a.so",
    }
    body = "{stop_token: '</s>', max_tokens: 5, reasoning: {effort: high}}"
    assert make_plan([*SERVER, f"engine.body={body}"]).plan.arms[0].engine["body"]["stop_token"] == "</s>"


def test_a_variable_that_is_not_there_is_an_early_error() -> None:
    with pytest.raises(InputError, match="no variable LAB_NONE; export LAB_NONE, or give a default"):
        make_plan([*SERVER, "engine.body={k: '${oc.env:LAB_NONE}'}"])
    plan = make_plan([*SERVER, "engine.body={k: '${oc.env:LAB_NONE,5}'}"]).plan
    assert plan.arms[0].engine["body"] == {"k": 5}


def test_the_same_arm_has_one_identity_whatever_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for value in ("one-secret", "two-secret"):
        monkeypatch.setenv("HF_TOKEN", value)
        plan = make_plan([*ARMS, "engine.environment={HF_TOKEN: '${oc.env:HF_TOKEN}'}"]).plan
        found.add(plan.arms[0].config_sha256)
    assert len(found) == 1


@pytest.mark.parametrize(
    "line",
    [
        "engine.environment=${now:%Y}",
        "engine.environment={A: '${now:%Y}'}",
        "engine.environment={A: '${hydra:runtime.cwd}'}",
        "engine.environment={A: '${python_version:}'}",
        "engine.environment={A: '${nonsense:1}'}",
        "engine.environment=${.name}",
        "engine.environment=${oc.env:HOME}",
        "engine.environment={A: '${oc.env:}'}",
        "engine.environment={A: '${oc.env:[1]}'}",
        "engine.environment={A: '${oc.env:HOME,1,2}'}",
        "engine.environment={A: '${.nonsense}'}",
        "engine.environment={A: '${design.rounds}'}",
        "engine.environment={A: '${n${.B}:%Y}', B: ow}",
        "design.rounds=${now:%d}",
    ],
)
def test_what_would_make_another_plan_each_time_is_refused_in_words(line: str) -> None:
    with pytest.raises(InputError) as refusal:
        resolved(line)
    assert "raised while" not in str(refusal.value)
    assert line.partition("=")[0].split(".")[0] in str(refusal.value)


def test_what_a_stored_plan_refers_to_is_masked_wherever_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`resume` and `work` compose nothing: the plan's own references name its secrets."""
    plan = make_plan([*ARMS, "engine.environment={FOO: '${oc.env:LAB_WORD}'}"]).plan
    database = open_database(f"sqlite:///{tmp_path / 'x.db'}")
    recorder = create_run(database, plan, host=read_host(), weights=find_weights(plan), log_root=tmp_path / "logs")
    KNOWN.clear()
    crew_of(recorder, {}, note=lambda text: None)
    assert KEY not in mask(f"the server said word-{KEY}")
