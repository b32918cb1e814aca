"""References to the environment, resolved where they are used."""

import pytest

from workers.errors import EngineError
from workers.masking import mask
from workers.references import names_of_engine, resolved_engine

ENGINE = {
    "url": "http://me:${oc.env:LAB_WORD}@host:1",
    "body": {"auth": ["${oc.env:LAB_KEY}", 1]},
    "model": "${oc.env:LAB_MODEL}",  # no place for a reference: text as it stands
    "api_key_env": "MY_KEY",
}


def test_values_take_the_place_of_references_and_are_masked_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_WORD", "correct-horse")
    monkeypatch.setenv("LAB_KEY", "battery-staple")
    assert resolved_engine(ENGINE) == ENGINE | {
        "url": "http://me:correct-horse@host:1",
        "body": {"auth": ["battery-staple", 1]},
    }
    assert "horse" not in mask("401 for correct-horse")
    assert "staple" not in mask("401 for battery-staple")


def test_a_variable_that_is_not_there_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_WORD", "correct-horse")
    monkeypatch.delenv("LAB_KEY", raising=False)
    with pytest.raises(EngineError, match=r"no variable LAB_KEY, which engine\.body\.auth refers to; export LAB_KEY"):
        resolved_engine(ENGINE)


def test_where_things_are_on_this_machine_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert resolved_engine({"environment": {"CACHE": "${oc.env:HOME}/x"}})["environment"]["CACHE"] == "/home/somebody/x"
    assert mask("/home/somebody/x") == "/home/somebody/x"


def test_the_variables_of_an_engine() -> None:
    assert names_of_engine(ENGINE) == ["MY_KEY", "LAB_KEY", "LAB_WORD"]
