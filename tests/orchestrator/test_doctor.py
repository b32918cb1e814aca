"""`interlace doctor`: every field with its value or the reason and remedy, what stands in the way, in 80 columns."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.doctor import Diagnosis, as_json, examine
from orchestrator.running.gate import Finding
from orchestrator.views.doctor_summary import print_summary
from orchestrator.views.doctor_view import print_diagnosis
from workers.environment import METAL_BUILD
from workers.machine.host import read_host
from workers.machine.remedies import remedy
from workers.machine.sleep_inhibitor import Awake
from workers.machine.telemetry import FIRST, Reading, read_machine
from workers.supervision.orphans import Leftovers, Orphan, Suspect


@pytest.fixture(scope="module")
def doctor(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"INTERLACE_DB": str(tmp_path_factory.mktemp("doctor") / "test.db"), "COLUMNS": "80"}
    command = [sys.executable, "-m", "orchestrator", "doctor", "--json"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_command_gives_programs_everything(doctor: "subprocess.CompletedProcess[str]") -> None:
    found: dict[str, Any] = json.loads(doctor.stdout)
    assert doctor.returncode == (4 if found["obstacles"] else 0)
    fields = {reading["field"] for reading in found["readings"]}
    assert {reading.field for reading in read_machine()} == fields
    for reading in found["readings"]:
        assert reading["value"] is not None or reading["value_text"] or reading["reason"]
    assert found["versions"]["mlx"]
    assert "Device" in found["device"]["device"]
    assert found["host"]["hostname"] == read_host().hostname
    assert (found["awake"]["tool"] is None) != (found["awake"]["reason"] is None)
    assert "fresh" in found["database"]


def test_rates_have_their_second_reading(doctor: "subprocess.CompletedProcess[str]") -> None:
    (cores,) = (r for r in json.loads(doctor.stdout)["readings"] if r["field"] == "cpu_cores_others")
    assert cores["value"] is not None


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    folder = tmp_path_factory.mktemp("here")
    return examine(database=folder / "test.db", database_words="none yet", journal=folder / "journal", state=folder)


def shown(found: Diagnosis) -> str:
    out = io.StringIO()
    print_diagnosis(found, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def summary(found: Diagnosis, width: int = 80) -> list[str]:
    out = io.StringIO()
    print_summary(found, Console(file=out, width=width, highlight=False))
    return out.getvalue().splitlines()


def quiet(here: Diagnosis) -> Diagnosis:
    """This machine with nothing against it."""
    return replace(
        here,
        unusable=(),
        leftovers=Leftovers(orphans=(), suspects=()),
        unfinished=(),
        gate=(),
        readings=GOOD,
        disk_free_bytes=10**11,
    )


GOOD = (
    Reading(field="swap_used_bytes", value=0.0, source="s"),
    Reading(field="gpu_mhz", reason="macmon is not installed"),
    Reading(field="gpu_active_ratio", reason="macmon is not installed"),
    Reading(field="energy_mj", reason="zeus is not installed"),
    Reading(field="other_thing_bytes", reason="not here"),
)


def test_when_all_is_well_five_lines_say_so_and_the_verdict_is_first(here: Diagnosis) -> None:
    said = summary(quiet(here))
    assert said[0] == "✓ nothing stands in the way of a run"
    assert len(said) == 5
    assert max(map(len, said)) <= 80
    assert said[3] == "records   1 reading; missing: GPU, energy, other thing"
    assert said[4].endswith("interlace doctor --all")


def test_what_is_not_well_comes_first_and_has_a_line_each(here: Diagnosis) -> None:
    waits = Finding(name="cpu_cores_others", kind="busy", problem="others use 1.3 cores, waiting for 0.5")
    low = Reading(field="priority", value=4.0, source="ps")
    found = replace(quiet(here), unusable=("the database is damaged",), gate=(waits,), readings=(*GOOD, low))
    said = summary(found, width=200)
    assert said[0] == "✗ a run would be refused: the database is damaged"
    assert said[1] == "! a trial would wait: others use 1.3 cores, waiting for 0.5"
    assert said[2].startswith("! priority 4 instead of 31")
    assert len(said) == 7


def test_people_get_80_columns_with_each_field(here: Diagnosis) -> None:
    text = shown(here)
    assert max(len(line) for line in text.splitlines()) <= 80
    for reading in here.readings:
        assert reading.field in text


def test_a_missing_reading_says_why_and_what_would_bring_it(here: Diagnosis) -> None:
    missing = Reading(field="gpu_mhz", source="macmon", reason="macmon is not installed")
    words = remedy("darwin", "gpu_mhz", "macmon is not installed")
    assert words is not None
    text = " ".join(shown(replace(here, readings=(missing,), remedies={"gpu_mhz": words})).split())
    assert "macmon is not installed → install macmon" in text


@pytest.mark.parametrize(
    ("source", "value", "says"),
    [
        ("ps", 4.0, "! priority 4 instead of 31: macOS runs this in the background, up to 8 times slower → start it"),
        ("ps", 20.0, "! priority 20 instead of 31: macOS throttles this → start it from a terminal"),
        ("ps", 31.0, None),
        ("ps", 47.0, None),
    ],
)
def test_a_low_priority_is_reported_with_its_remedy(
    here: Diagnosis, source: str, value: float, says: str | None
) -> None:
    reading = Reading(field="priority", value=value, source=source)
    text = " ".join(shown(replace(here, readings=(reading,), remedies={})).split())
    assert ("! priority" in text) == (says is not None)
    assert (says or "") in text


@pytest.mark.parametrize(
    ("system", "build", "warned"),
    [
        ("macOS 26.1", "py3-none-macosx_15_0_arm64", True),
        ("macOS 26.1", "py3-none-macosx_26_0_arm64", False),
        ("macOS 15.5", "py3-none-macosx_15_0_arm64", False),
        ("macOS 26.1", None, False),
        ("Linux", "py3-none-macosx_15_0_arm64", False),
    ],
)
def test_metal_kernels_built_for_an_older_macos_are_warned_of(
    here: Diagnosis, system: str, build: str | None, warned: bool
) -> None:
    found = replace(here, host=replace(here.host, os=system), versions={"mlx": "0.32.4", METAL_BUILD: build})
    text = " ".join(shown(found).split())
    assert ("mlx-metal was built for macOS 15" in text) == warned


def test_a_python_under_rosetta_and_its_hidden_files_are_told_with_the_remedy(
    here: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.interpreter.sys.platform", "darwin")
    hidden = "/Users/ada/Documents/.venv/lib/python3.13/site-packages/_editable.pth"
    python = replace(here.interpreter, machine="x86_64", translated=True, origin="Homebrew", hidden_pth=(hidden,))
    found = replace(here, interpreter=python, device={"error": "mlx cannot be imported: No module named 'mlx'"})
    text = " ".join(shown(found).split())
    assert "for x86_64 under Rosetta, built by Homebrew" in text
    assert "✗ a run would be refused: this Python is built for Intel and runs under Rosetta" in text
    assert "a run would be refused: mlx cannot be imported" not in text  # the cause is said, not what comes of it
    assert "! _editable.pth is hidden, so Python skips it → chflags -R nohidden" in text


def test_each_condition_that_cannot_be_read_says_why(here: Diagnosis) -> None:
    unread = (
        Finding(name="vm_pressure", kind="busy", unreadable="not read on this platform"),
        Finding(name="thermal_level", kind="heat", unreadable="no thermal zones here"),
    )
    text = " ".join(shown(replace(here, gate=unread)).split())
    assert "vm_pressure passes not readable: not read on this platform" in text
    assert "thermal_level passes not readable: no thermal zones here" in text


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("systemd-inhibit cannot be started: No such file or directory", "install systemd"),
        ("systemd-inhibit gave up: Failed to connect to bus", "keep the host awake"),
        ("caffeinate cannot be started: No such file or directory", "put that on PATH"),
        ("no tool is known on freebsd14", "turn sleeping off"),
    ],
)
def test_a_machine_that_is_not_kept_awake_gets_the_remedy(here: Diagnosis, reason: str, remedy: str) -> None:
    text = " ".join(shown(replace(here, awake=Awake(tool=None, reason=reason))).split())
    assert f"no: {reason} → " in text
    assert remedy in text


def test_leftovers_are_named_with_their_memory(here: Diagnosis) -> None:
    orphan = Orphan(
        pid=41, create_time=0.0, title="idle", memory_bytes=3 * 10**9, run_id="run-1", arm="arm-1", proof="journal"
    )
    suspect = Suspect(pid=42, title="python serve.py", memory_bytes=10**9, why="listens on port 8080")
    found = replace(here, leftovers=Leftovers(orphans=(orphan,), suspects=(suspect,)))
    text = " ".join(shown(found).split())
    assert "the next run ends process 41 (idle), arm arm-1 of run run-1, held 3.00 GB" in text
    assert "✗ a run would be refused: process 42 (python serve.py) listens on port 8080, holds 1.00 GB" in text


def test_what_a_run_could_not_write_stands_in_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {tmp_path / "here" / "interlace.db", tmp_path / "mine"}
    for each in refused:
        each.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) not in refused)
    found = examine(
        database=tmp_path / "here" / "interlace.db",
        database_words="damaged",
        journal=tmp_path / "journal",
        state=tmp_path / "mine" / "state",
        problem="interlace.db: damaged",
    )
    damaged, database, state = found.obstacles[:3]
    assert damaged == "interlace.db: damaged"
    assert database.startswith(f"the database {tmp_path / 'here' / 'interlace.db'} cannot be written; make")
    assert state.endswith(f"cannot be written; make {tmp_path / 'mine'} writable, or name another place")
    assert f"arunwouldberefused:{damaged}".replace(" ", "") in "".join(shown(found).split())


def test_a_full_disk_stands_in_the_way(here: Diagnosis) -> None:
    full = replace(here, disk_free_bytes=1_500_000)
    assert "1.5 MB are free for the database; make room on the disk" in full.obstacles
    assert replace(here, disk_free_bytes=None).obstacles == replace(here, disk_free_bytes=10**9).obstacles


def test_files_of_killed_commands_are_named(tmp_path: Path) -> None:
    left = tmp_path / ".interlace-backup-x1"
    left.mkdir()
    (left / "backup.db").write_bytes(bytes(2_000_000))
    os.utime(left, (0, 0))
    found = examine(database=tmp_path / "interlace.db", database_words="", journal=tmp_path / "journal", state=tmp_path)
    words = "".join(shown(found).split())  # wrapped wherever the path is long
    assert "leftbyakilledcommand:" in words
    assert ".interlace-backup-x1(2.0MB);thenextbackup,exportorimportremovesit" in words
    assert json.loads(as_json(found))["unfinished"] == [{"path": str(left), "size_bytes": 2_000_000}]


def test_a_machine_on_which_mlx_fails_is_reported(here: Diagnosis) -> None:
    broken = replace(here, device={"error": "mlx cannot be imported: no Metal"})
    assert "mlx cannot be imported: no Metal" in broken.obstacles


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("cpu_cores_others", FIRST),
        ("gpu_c", "nvidia-ml-py is not installed"),
        ("energy_mj", "zeus-apple-silicon is not installed"),
        ("stalled_io_us", "/proc/pressure/io does not exist"),
        ("thermal_zone_c", "no thermal zones here"),
    ],
)
def test_remedies(field: str, reason: str) -> None:
    assert remedy("linux", field, reason)


def test_a_folder_that_is_not_there_yet_is_no_obstacle(tmp_path: Path) -> None:
    absent = tmp_path / "a" / "b" / "test.db"
    assert examine(database=absent, database_words="", journal=absent, state=absent).disk_free_bytes
