"""No plan holds a secret: it is stored, exported and shown."""

import pytest

from orchestrator.configuration.compose import make_plan
from orchestrator.errors import InputError
from orchestrator.plan import dump

ARMS = ["engine=simulated", "checkpoint=simulated", "workload=quick"]


def test_a_secret_from_the_environment_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdef")
    line = "engine.environment={HF_TOKEN: '${oc.env:HF_TOKEN}', OMP_NUM_THREADS: '2'}"
    plan = make_plan([*ARMS, line]).plan
    assert plan.arms[0].engine["environment"] == {"OMP_NUM_THREADS": "2"}
    assert "hf_abcdef" not in dump(plan)
    assert any("HF_TOKEN: not in the plan" in note for note in plan.notes)


def test_a_secret_is_not_in_the_recorded_command_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "abcdef123")
    plan = make_plan([*ARMS, "engine.environment={MY_API_KEY: abcdef123}"]).plan
    assert "abcdef123" not in dump(plan)
    assert plan.command[-1] == "engine.environment={MY_API_KEY: <redacted>}"


def test_a_literal_secret_is_refused_without_being_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(InputError, match="HF_TOKEN looks like a secret, and a plan is stored; leave it out") as caught:
        make_plan([*ARMS, "engine.environment={HF_TOKEN: hf_abcdef}"])
    assert "hf_abcdef" not in str(caught.value)


def test_the_same_arm_has_one_identity_whatever_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for value in ("one-secret", "two-secret"):
        monkeypatch.setenv("HF_TOKEN", value)
        plan = make_plan([*ARMS, "engine.environment={HF_TOKEN: '${oc.env:HF_TOKEN}'}"]).plan
        found.add(plan.arms[0].config_sha256)
    assert len(found) == 1
