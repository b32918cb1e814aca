"""Whole commands as if on three Macs: a quiet Studio, a hot MacBook on battery, a German one with its lid closed."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.orchestrator.shells import SIMULATED
from tests.standin.macs import GERMAN_NIGHT, HOT_MACBOOK, MACS, QUIET_STUDIO, StandinMac, is_tool_executable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "darwin", reason="a Mac is no stand-in for another"),
]

SHORT = [*SIMULATED, "design.rounds=6", "design.aa=false", "design.bracket=false"]
REAL = ["checkpoint=dummy-tiny", "engine=mlx_lm", "workload=quick", "workload.max_tokens=8"]
READ = "SELECT field, value, value_text, reason FROM telemetry WHERE phase = 'before' GROUP BY field"
COMMANDS: dict[str, list[str]] = {
    "doctor": ["doctor", "--all"],
    "plan": ["plan", *REAL],
    "quickstart": ["plan", "sweep=quickstart"],
    "run": ["run", *SHORT, "--quiet"],
    "refused": ["run", *REAL, "gate=default", "--quiet"],
    "queue": ["queue", "add", *SHORT, "design.seed=2"],
    "work": ["work"],
    "audit": ["audit", "last"],
    "readings": ["query", READ, "--format", "json"],
}


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command on a stand-in Mac."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Return its output without the line breaks of its tables."""
        return " ".join((self.out + self.err).split())


def commands_on(mac: StandinMac, folder: Path, *names: str) -> dict[str, Done]:
    """These commands, one after the other, in one process of this Mac."""
    environment = os.environ | mac.set_up(folder / "mac")
    environment |= {
        "INTERLACE_DB": f"sqlite:///{folder / 'test.db'}",
        "INTERLACE_STATE": str(folder / "state"),
        "INTERLACE_CHECKPOINTS": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.standin.driver", str(folder)],
        input=json.dumps([COMMANDS[name] for name in names]),
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    lines = [Done(**json.loads(line)) for line in done.stdout.splitlines()]
    return dict(zip(names, lines, strict=True))


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    names = ("doctor", "plan", "queue", "work", "audit", "readings")
    return commands_on(QUIET_STUDIO, tmp_path_factory.mktemp("quiet"), *names)


@pytest.fixture(scope="module")
def hot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    return commands_on(
        HOT_MACBOOK, tmp_path_factory.mktemp("hot"), "doctor", "plan", "quickstart", "refused", "run", "readings"
    )


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    names = ("doctor", "queue", "work", "audit", "readings")
    return commands_on(GERMAN_NIGHT, tmp_path_factory.mktemp("german"), *names)


@pytest.fixture(scope="module")
def all_three(quiet: dict[str, Done], hot: dict[str, Done], german: dict[str, Done]) -> dict[str, dict[str, Done]]:
    return {"quiet": quiet, "hot": hot, "german": german}


def readings(done: dict[str, Done]) -> dict[str, tuple[float | None, str | None]]:
    """Return the rows that the run stored before its trials."""
    rows = json.loads(done["readings"].out)
    return {row["field"]: (row["value"], row["value_text"]) for row in rows if row["reason"] is None}


def test_no_command_breaks_and_no_table_is_wider_than_80_columns(all_three: dict[str, dict[str, Done]]) -> None:
    for mac, done in all_three.items():
        for name, command in done.items():
            assert "Traceback" not in command.err, (mac, name)
            if name not in ("readings", "work"):  # work names a file, which may lie anywhere
                wide = [line for line in command.out.splitlines() if len(line) > 80]
                assert not [line for line in wide if "  " in line.strip()], (mac, name)  # prose breaks at a terminal
    codes = {
        mac: {name: command.code for name, command in done.items() if command.code} for mac, done in all_three.items()
    }
    assert codes == {"quiet": {}, "hot": {"doctor": 4, "refused": 4}, "german": {}}


def test_the_quiet_studio_is_read_whole_and_works_its_queue(quiet: dict[str, Done]) -> None:
    assert "studio.local, macOS 15.5, 24F74" in quiet["doctor"].words
    assert "Apple M3 Ultra" in quiet["doctor"].words
    assert "kept awake caffeinate" in quiet["doctor"].words
    assert "✓ nothing stands in the way of a run" in quiet["doctor"].words
    assert "this Mac has no lid" in quiet["doctor"].words
    assert (
        "for a cool machine and mains power, 420 s per trial and 3600 s per run for other load" in quiet["plan"].words
    )
    found = readings(quiet)
    assert found["thermal_level"] == (0.0, "nominal")
    assert found["power_source"] == (None, "mains")
    assert found["display"] == (None, "on")
    assert found["gpu_mhz"] == (388.0, None)
    assert found["system_w"][0] == pytest.approx(18.95, abs=0.01)
    assert found["tree_memory_bytes"][0] > 1e7  # type: ignore[operator]  # this very process
    assert "lid" not in found


def test_the_hot_macbook_is_told_what_stands_in_the_way_and_still_plans(hot: dict[str, Done]) -> None:
    doctor = hot["doctor"].words
    assert "thermal_level waits thermal level 2" in doctor
    assert "vm_pressure waits" in doctor
    assert "✗ a run would be refused: power from battery" in doctor
    assert hot["refused"].err.splitlines()[-1] == (
        "interlace: power comes from battery: plug in, or set gate.power_source=any"
    )
    quickstart = hot["quickstart"].words
    assert "5 s per trial and 20 s per run for other load" in quickstart
    assert "flagged hot_start and counted: what that costs shows in the A/A control; any power" in quickstart
    found = readings(hot)  # of a simulated run, which passes no gate
    assert (found["thermal_level"], found["power_source"]) == ((2.0, "heavy"), (None, "battery"))
    assert (found["power_mode"], found["vm_pressure"]) == ((2.0, "high"), (2.0, "warning"))
    assert (found["lid"], found["display"]) == ((None, "open"), (None, "on"))
    assert "gpu_c" not in found  # a sensor that says 0 has a reason instead


def test_decimal_commas_and_a_closed_lid_are_read_as_what_they_are(german: dict[str, Done]) -> None:
    found = readings(german)
    assert found["swap_used_bytes"] == (1470.06 * 2**20, None)
    assert (found["lid"], found["display"]) == ((None, "closed"), (None, "asleep"))
    assert found["compressed_bytes"] == (1_022_243 * 16_384.0, None)
    assert "macmon is not installed" in german["doctor"].words
    assert "! the lid is closed: this Mac may sleep during the run" in german["doctor"].words


@pytest.mark.nightly
def test_the_self_test_of_a_mac_ends_and_its_report_names_nobody(tmp_path: Path) -> None:
    """Half of its second sources are this machine's, so that they disagree: that it works through is the matter."""
    environment = os.environ | GERMAN_NIGHT.set_up(tmp_path / "mac")
    environment |= {"INTERLACE_DB": str(tmp_path / "test.db"), "INTERLACE_STATE": str(tmp_path / "state")}
    path = tmp_path / "report.json"
    command = [sys.executable, "-m", "orchestrator", "doctor"]
    done = subprocess.run([*command, "--selftest", "-o", str(path)], capture_output=True, text=True, env=environment)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    text = path.read_text(encoding="utf-8")
    assert GERMAN_NIGHT.hostname not in text
    assert str(tmp_path) not in text
    body = json.loads(text)
    assert (body["facts"]["platform"], body["facts"]["chip"]) == ("darwin", "Apple M1 Pro")
    results = {check["name"]: check["result"] for check in body["checks"]}
    assert results["SIGTERM in a decode"] == results["SIGKILL in a decode"] == "agrees"
    assert results["GPU time of others"] == "unreadable"
    assert body["trials"]["aa"]["rounds"] == 10
    again = subprocess.run([*command, "--replay", str(path)], capture_output=True, text=True, check=True)
    assert "macOS 14.7.5, Apple M1 Pro" in again.stdout


@pytest.mark.parametrize("mac", MACS, ids=lambda mac: mac.name)
def test_a_stand_in_answers_every_command_that_a_reading_gives(mac: StandinMac) -> None:
    assert is_tool_executable()
    assert len(mac.answers()) >= 22
