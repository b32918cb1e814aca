"""GitHub's files name what is there: make targets, scripts, markers, tools. Their syntax is `make lint`'s to check."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GROUPED = {"list", "import", "export"}  # of `interlace checkpoint` and `interlace db`
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def commands(path: Path) -> list[str]:
    return [line.strip() for step in steps(path) for line in str(step.get("run", "")).splitlines()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_only_what_is_there(path: Path) -> None:
    assert commands(path)
    for line in commands(path):
        for target in re.findall(r"^make ([\w-]+)$", line):
            assert target in TARGETS, line
        for script in re.findall(r"(?<![\w/])\.ci/[\w.-]+", line):
            assert (ROOT / script).is_file(), line
            assert script.endswith(".py") or (ROOT / script).stat().st_mode & 0o100, f"{script} is not executable"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_gives_interlace_only_options_that_it_has(path: Path) -> None:
    """And settings that it has: each line is read as the command line reads it, but for its --help at the end."""
    from click.testing import CliRunner

    from orchestrator import cli

    for line in commands(path):
        found = re.match(r"(?:venv/bin/)?interlace ([^|]+)", line)
        if found is None:
            continue
        words = shlex.split(found[1])
        assert CliRunner().invoke(cli.cli, [*words, "--help"]).exit_code == 0, line
        options = {word for word in words if word.startswith("-")}
        shown = CliRunner().invoke(cli.cli, [words[0], *(w for w in words[1:2] if w in GROUPED), "--help"]).output
        assert all(re.search(rf"(?<![\w-]){re.escape(option)}\b", shown) for option in options), line


def test_a_tried_python_is_one_that_the_project_names() -> None:
    """From the oldest to the newest; README names the same range."""
    named = re.search(r"Python (3\.\d+) to (3\.\d+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named is not None
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    for job in ("tests", "wheel"):
        assert {named[1], named[2]} <= set(jobs[job]["strategy"]["matrix"]["python"])


def test_a_workflow_s_tests_see_no_setting_of_ours() -> None:
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            tests = [step for step in job["steps"] if "make test" in str(step.get("run", ""))]
            names = {name for each in (job, *tests) for name in each.get("env", {}) if tests}
            assert not {name for name in names if name.startswith("INTERLACE_") and "REQUIRE" not in name}, path


def test_a_cache_is_keyed_by_the_lock_files() -> None:
    for path in WORKFLOWS:
        for step in steps(path):
            given = step.get("with", {})
            if "setup-uv" in str(step.get("uses")) or "cache" in given:
                keys = given.get("cache-dependency-glob", given.get("cache-dependency-path"))
                assert keys == "requirements*.lock", path
    assert len(list(ROOT.glob("requirements*.lock"))) == 2


def test_linux_runs_what_make_check_runs() -> None:
    """`make check` is split over jobs; no part of it may be lost on the way."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^check: (.*)$", makefile, re.MULTILINE)
    lines = "\n".join(commands(ROOT / ".github" / "workflows" / "ci.yml"))
    nightly = {"test-nightly", "verify-quickstart"}  # of the scheduled job, which runs all
    assert ".ci/run" in lines
    for part in set(parts.split()) - nightly:
        assert re.search(rf"^make {part}$", lines, re.MULTILINE), part


def test_ci_runs_what_make_check_runs() -> None:
    """`.ci/run` names the parts of `make check`, because tests that fail there get a second try."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^check: (.*)$", makefile, re.MULTILINE)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    named = [word for line in re.findall(r"^make ([\w -]+?)(?: \|\||$)", script, re.MULTILINE) for word in line.split()]
    assert sorted(named) == sorted(parts.split())


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


def made_with(python: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """`make setup` with an interpreter that answers make's two questions as this script does."""
    fake = folder / "python"
    fake.write_text(python)
    fake.chmod(0o755)
    command = ["make", "setup", f"PYTHON={fake}", f"VENV={folder / 'made'}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_make_refuses_an_intel_python_on_a_mac_before_it_installs(tmp_path: Path) -> None:
    done = made_with('#!/bin/sh\ncase "$2" in *version_info*) exit 0;; *) echo "Darwin x86_64";; esac\n', tmp_path)
    assert done.returncode == 2
    assert "is built for Intel, and MLX needs arm64: run uv python install 3.13" in done.stdout
    assert not (tmp_path / "made").exists()


def test_make_refuses_a_python_that_is_too_old(tmp_path: Path) -> None:
    done = made_with("#!/bin/sh\nexit 1\n", tmp_path)
    assert done.returncode == 2
    assert "interlace needs Python 3.11 or newer" in done.stdout


def test_the_environment_of_an_editable_install_is_in_no_folder_that_macos_hides() -> None:
    """In Documents and on the Desktop it hides folders with a dot, and Python skips the hidden .pth file therein."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (folder,) = re.findall(r"^VENV := (\S+)$", makefile, re.MULTILINE)
    assert "--editable" in makefile
    assert not folder.startswith(".")


FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask_for_commands_that_exist(path: Path) -> None:
    from click.testing import CliRunner

    from orchestrator import cli

    for command in set(re.findall(r"`interlace ([a-z]+)", path.read_text(encoding="utf-8"))):
        assert CliRunner().invoke(cli.cli, [command, "--help"]).exit_code == 0, command


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing", "heals", "code", "words"),
    [
        (1, True, 0, "UNSTABLE, passed only alone: test_it.py::test_it[0]"),
        (1, False, 1, "1 failed"),
        (3, True, 1, "no second try: 3 tests failed"),
        (0, True, 1, "no second try: 0 tests failed"),
    ],
)
def test_few_failures_get_a_second_try_and_are_named(
    tmp_path: Path, failing: int, heals: bool, code: int, words: str
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "second-try", tmp_path / ".ci")
    (tmp_path / "venv").symlink_to(sys.prefix)
    (tmp_path / "test_it.py").write_text(
        "import pathlib, pytest\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test_it(number):\n"
        f"    assert number >= {failing} or pathlib.Path('healed').exists()\n"
    )
    subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, check=False)
    if heals:
        (tmp_path / "healed").touch()
    done = subprocess.run([tmp_path / ".ci" / "second-try", "not nightly"], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout
