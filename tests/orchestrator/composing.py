"""Composing in tests: the plan of some overrides, or the one line that refuses them."""

from pathlib import Path

import pytest

from orchestrator.configuration.compose import make_plan
from orchestrator.errors import InputError
from orchestrator.plan import Plan


def plan_of(*overrides: str, config_dir: Path | None = None) -> Plan:
    return make_plan(overrides, config_dir=config_dir).plan


def refusal(*overrides: str, config_dir: Path | None = None) -> str:
    """The message; every one is a single line and ends with exit code 2."""
    with pytest.raises(InputError) as caught:
        make_plan(overrides, config_dir=config_dir)
    message = str(caught.value)
    assert "\n" not in message, message
    assert caught.value.exit_code == 2
    return message


def names(*overrides: str, config_dir: Path | None = None) -> list[str]:
    return [arm.name for arm in plan_of(*overrides, config_dir=config_dir).arms]


def write(folder: Path, name: str, text: str) -> Path:
    """A configuration file in a user's folder; returns the folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder
