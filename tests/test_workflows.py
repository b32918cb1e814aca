"""GitHub's files name what is there: make targets, scripts, markers, tools. Their syntax is `make lint`'s to check."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def commands(path: Path) -> list[str]:
    return [line.strip() for step in steps(path) for line in str(step.get("run", "")).splitlines()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_only_what_is_there(path: Path) -> None:
    for line in commands(path):
        for target in re.findall(r"^make ([\w-]+)$", line):
            assert target in TARGETS, line
        for script in re.findall(r"(?<![\w/])\.ci/[\w.-]+", line):
            assert (ROOT / script).is_file(), line
            assert script.endswith(".py") or (ROOT / script).stat().st_mode & 0o100, f"{script} is not executable"


def test_linux_runs_what_make_check_runs() -> None:
    """`make check` is split over jobs; no part of it may be lost on the way."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^check: (.*)$", makefile, re.MULTILINE)
    lines = "\n".join(commands(ROOT / ".github" / "workflows" / "ci.yml"))
    nightly = {"test-nightly", "verify-quickstart"}  # of the scheduled job, which runs all
    assert ".ci/run" in lines
    for part in set(parts.split()) - nightly:
        assert re.search(rf"^make {part}$", lines, re.MULTILINE), part


def test_macs_are_tried_with_three_pythons_and_both_systems() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "mac.yml").read_text(encoding="utf-8"))["jobs"]["mac"]
    matrix = job["strategy"]["matrix"]
    assert set(matrix["os"]) == {"macos-15", "macos-26"}
    for kind in matrix["python"]:
        assert any(f"'{kind}'" in str(step.get("if", "")) for step in job["steps"]), kind
    assert job["steps"][-1]["if"] == "always()"  # what was read is kept, above all when something failed


def test_raw_readings_keep_every_tool_that_is_read_on_a_mac() -> None:
    kept = (ROOT / ".ci" / "raw-readings").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "workers").rglob("*.py")]
    tools = {tool for source in sources for tool in re.findall(r"system\.run\(\s*\"(\w+)\"", source)}
    assert {"pmset", "ioreg", "ps"} <= tools
    missing = {tool for tool in tools if not re.search(rf"^keep \w+ (sudo -n )?{tool}\b", kept, re.MULTILINE)}
    assert not missing


FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask_for_commands_that_exist(path: Path) -> None:
    from click.testing import CliRunner

    from orchestrator import cli

    for command in set(re.findall(r"`interlace ([a-z]+)", path.read_text(encoding="utf-8"))):
        assert CliRunner().invoke(cli.cli, [command, "--help"]).exit_code == 0, command
