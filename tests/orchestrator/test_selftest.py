"""`interlace doctor --selftest`: its report holds nothing personal, and reads the same anywhere."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.selftest import as_json, gpu_time_check, replay
from tests.orchestrator.self_reports import MINIMAL
from tests.orchestrator.shells import Shell
from workers.machine.crosschecks import AGREES, DISAGREES, UNREADABLE
from workers.machine.telemetry import Reading

REPORTS = sorted((Path(__file__).parent.parent / "fixtures" / "macs").glob("*.json"))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's, made by the command in a process of its own."""
    folder = tmp_path_factory.mktemp("selftest")
    path = folder / "report.json"
    command = [sys.executable, "-m", "orchestrator", "doctor", "--selftest", "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"COLUMNS": "80"}, cwd=folder)
    return path


@pytest.fixture(scope="module")
def body(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


@pytest.mark.nightly
def test_what_can_be_checked_here_agrees(body: dict[str, Any]) -> None:
    results = {check["name"]: check["result"] for check in body["checks"]}
    wrong = [check for check in body["checks"] if check["result"] == DISAGREES]
    assert [check for check in wrong if check["name"] != "priority"] == []  # the tests may have been niced
    assert results["SIGTERM in a decode"] == results["SIGKILL in a decode"] == AGREES
    assert results["CPU time of an ended child"] == results["installed memory"] == AGREES
    if sys.platform == "linux":
        assert results["thermal level"] == UNREADABLE


@pytest.mark.nightly
def test_a_tiny_model_ran_against_itself_and_after_idling(body: dict[str, Any]) -> None:
    aa = body["trials"]["aa"]
    assert aa["rounds"] == 10
    assert aa["ci_low"] < aa["ratio"]
    assert list(body["trials"]["first_decode_after_idle_s"]) == ["0.5", "1", "2", "5"]


@pytest.mark.nightly
def test_the_report_names_nobody(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    names = {name for name in (platform.node(), Path.home().name) if len(name) > 2 and name != "root"}
    assert not [name for name in names if name.lower() in text.lower()]
    assert str(Path.home()) not in text
    assert str(report.parent) not in text
    assert not re.search(r"/(Users|home)/", text)
    assert not re.search(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", text)
    assert not re.search(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}", text)


@pytest.mark.nightly
def test_a_report_reads_the_same_elsewhere(report: Path, tmp_path: Path) -> None:
    here, again = Shell(tmp_path)("doctor", "--replay", str(report)), replay(report.read_text(encoding="utf-8"))
    assert json.loads(as_json(again))["checks"] == json.loads(report.read_text(encoding="utf-8"))["checks"]
    assert f"readings: {sum(each.reason is None for each in again.readings)} of" in here.stdout


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_every_mac_s_report_is_read_by_todays_parsers(path: Path) -> None:
    """Reports of real Macs, from the issue form; none has come yet."""
    found = replay(path.read_text(encoding="utf-8"))
    assert found.facts["platform"] == "darwin"
    assert not found.disagreeing


def test_another_machine_s_answers_are_read_by_todays_parsers() -> None:
    readings = {each.field: each for each in replay(json.dumps(MINIMAL)).readings}
    assert readings["power_source"].value_text == "battery"
    assert (readings["thermal_level"].value, readings["thermal_level"].value_text) == (2, "heavy")
    assert readings["wired_bytes"].reason == "vm_stat is not installed"
    assert readings["swap_used_bytes"].reason == "the report does not hold sysctl vm.swapusage"


@pytest.mark.parametrize(
    ("counted", "load", "result"),
    [
        (800.0, {"device": "Device(gpu, 0)", "busy_s": 2.0, "products": 9}, AGREES),
        (0.0, {"device": "Device(gpu, 0)", "busy_s": 2.0, "products": 9}, DISAGREES),
        (0.0, {"device": "Device(cpu, 0)", "busy_s": 2.0, "products": 9}, UNREADABLE),  # as in a virtual Mac
        (None, {"device": "Device(gpu, 0)", "busy_s": 2.0, "products": 9}, UNREADABLE),
        (800.0, {"error": "no MLX"}, UNREADABLE),
    ],
)
def test_a_load_that_no_gpu_ran_proves_nothing_of_the_gpu_s_counter(
    counted: float | None, load: dict[str, Any], result: str
) -> None:
    reading = Reading(field="gpu_ms_per_s_others", value=counted, reason=None if counted is not None else "no client")
    assert gpu_time_check(reading, load, took_s=2.5).result == result


def test_no_fact_or_reason_brings_a_name_into_the_report() -> None:
    """Every text of a report passes the same sieve, and the file stays JSON."""
    path = 'ran "/Users/Grace Hopper/lab\\venv/bin/python", and /Volumes/Grace\'s Disk/x: gone'
    rude = MINIMAL | {
        "facts": MINIMAL["facts"] | {"os": path, "chip": path, "python": path},
        "checks": [{"name": "swap", "result": "unreadable", "ours": path, "other": path}],
        "answers": [{"kind": "run", "asked": "vm_stat", "reason": path, "ms": 1.0}],
        "trials": {"first_decode_after_idle_s": {"reason": path}, "aa": {"reason": path}},
    }
    text = as_json(replay(json.dumps(rude)))
    assert "Grace" not in text
    assert "Disk" not in text
    assert replay(text).facts["machine"] == "arm64"


@pytest.mark.parametrize(
    "change",
    [
        {"report_version": 99},
        {"facts": {}},
        {"facts": MINIMAL["facts"] | {"wheel_tags": []}},
        {"checks": [{"name": "x"}]},
        {"checks": 3},
        {"answers": [{"kind": "run"}]},
        {"answers": None},
        {"trials": {}},
        {"trials": {"first_decode_after_idle_s": {"1": "slow"}, "aa": {}}},
        {"trials": {"first_decode_after_idle_s": [], "aa": {}}},
    ],
)
def test_what_is_no_report_is_one_line(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(MINIMAL | change))
    with pytest.raises(InputError):
        replay(path.read_text())
    assert len(Shell(tmp_path)("doctor", "--replay", str(path), code=2).stderr.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"report_version": 1}'])
def test_a_file_of_another_kind_is_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    assert len(Shell(tmp_path)("doctor", "--replay", str(path), code=2).stderr.splitlines()) == 1


def test_output_without_a_self_test_is_refused(tmp_path: Path) -> None:
    assert "add --selftest" in Shell(tmp_path)("doctor", "-o", "report.json", code=2).stderr
