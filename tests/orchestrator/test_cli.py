"""The command as a person uses it: exit codes, one clear line per mistake, kills and interrupts of real processes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.orchestrator.shells import ENGINE, INTERLACE, SIMULATED, Shell, one_line


def test_run_then_query_then_audit(shell: Shell) -> None:
    done = shell.process("run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=8")
    assert "supported" in done.stdout
    assert shell.count("SELECT 1 FROM trial_flat WHERE kind = 'measured'") == 8 * 3
    (verdict,) = shell.ask("SELECT verdict, direction, ratio FROM verdict_flat WHERE prompt_class IS NULL")
    assert verdict["verdict"] == "supported"
    assert verdict["direction"] == "faster"
    assert float(str(verdict["ratio"])) == pytest.approx(1.2, abs=0.03)
    assert json.loads(shell("audit", "last", "--format", "json").stdout)
    assert "| " in shell("audit", "--full", "--format", "markdown").stdout
    brief = shell("audit").stdout
    assert "effect=1.2: faster (supported), 1.2" in brief
    assert len(brief.splitlines()) <= 30
    assert "interlace audit " in brief


def test_fail_on_turns_a_verdict_into_an_exit_code(shell: Shell) -> None:
    arguments = ["run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=8", "--quiet"]
    line = one_line(shell(*arguments, "--fail-on", "supported", code=1))
    assert "effect=1.2 against effect=1" in line
    assert line.endswith("over all: supported")
    shell("audit", "last", "--fail-on", "not_engaged", "--fail-on", "confounded")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "engine=nope"], "mlx_lm"),
        (["run", "engine.blok=2"], "engine.blok"),
        (["run", "checkpoint=smollm2-8bit,smollm2-4bit"], "interlace checkpoint import smollm2"),
        (["run", "workload=prompts", "workload.file=absent.jsonl"], "absent.jsonl"),
        (["run", *SIMULATED, "design.rounds=3"], "at least 6"),
        (["audit", "absent"], "no database"),
        (["query", "SELECT 1", "--param", "x"], "NAME=VALUE"),
    ],
)
def test_each_mistake_is_one_clear_line_and_exit_code_2(shell: Shell, arguments: list[str], says: str) -> None:
    assert says in one_line(shell(*arguments, code=2))
    assert not shell.db.exists()


def test_a_folder_that_cannot_be_made_is_one_line(shell: Shell) -> None:
    shell.db.parent.joinpath("logs").touch()
    said = shell.process("run", *SIMULATED, "design.rounds=6", "--quiet", code=4).stderr
    assert "Traceback" not in said
    line = said.splitlines()[-1]  # notes on other processes of this machine may stand before it
    assert line.startswith(f"interlace: {shell.db.parent / 'logs'}")
    assert line.endswith("Not a directory; make it writable, or name another place")


def test_a_bad_prompt_file_names_its_line(shell: Shell) -> None:
    good = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
    (shell.folder / "mine.jsonl").write_text(f"{good}\n{{not json\n", encoding="utf-8")
    line = one_line(shell("run", *ENGINE, "workload=prompts", "workload.file=mine.jsonl", code=2))
    assert "mine.jsonl" in line
    assert "line 2" in line


def test_a_wrong_option_is_exit_code_2(shell: Shell) -> None:
    assert "--no-such-option" in shell("run", "--no-such-option", code=2).stderr


def test_writing_sql_is_refused(shell: Shell) -> None:
    shell("run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=6", "--quiet")
    before = shell.db.read_bytes()
    assert "only reading" in one_line(shell("query", "DELETE FROM run", code=2))
    assert shell.db.read_bytes() == before


def test_a_foreign_database_is_refused(shell: Shell) -> None:
    with sqlite3.connect(shell.db) as connection:
        connection.execute("CREATE TABLE shopping (item)")
    connection.close()
    line = one_line(shell("run", *SIMULATED, "engine.effect=1.0,1.2", code=4))
    assert str(shell.db) in line


def test_db_commands(shell: Shell) -> None:
    assert shell("db", "path").stdout.strip() == str(shell.db)
    shell("run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=6", "--quiet")
    assert "current" in shell("db", "check").stdout
    shell("db", "upgrade")
    with sqlite3.connect(shell.db) as connection:
        connection.execute("DROP VIEW verdict_flat")
    connection.close()
    assert "verdict_flat" in shell("db", "check", code=4).stdout


def stored(shell: Shell) -> int:
    """Measured trials that are committed, read beside the running writer."""
    if not shell.db.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{shell.db}?mode=ro", uri=True) as connection:
            (count,) = connection.execute("SELECT count(*) FROM trial WHERE kind = 'measured'").fetchone()
    except sqlite3.OperationalError:
        return 0  # the tables are not there yet
    finally:
        connection.close()
    return int(count)


def wait_for(shell: Shell, process: subprocess.Popen[bytes], trials: int) -> int:
    """Until so many trials are stored; the number then."""
    deadline = time.monotonic() + 60
    while (count := stored(shell)) < trials:
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return count


MANY = ["engine.effect=1.0,1.1", "design.rounds=20", "design.warmups=1"]
LONG = [*SIMULATED, *MANY]
EXPECTED = 20 * 3


def workers_alive(shell: Shell) -> list[int]:
    """Worker processes that belong to this test's folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        command = process.info["cmdline"] or []
        if "workers" in command and process.info["cwd"] == str(shell.folder):
            found.append(process.info["pid"])
    return found


@pytest.mark.parametrize("after", [1, 40])
def test_kill_9_leaves_every_finished_trial_and_a_resumable_run(shell: Shell, after: int) -> None:
    process = shell.start("run", *LONG)
    finished = wait_for(shell, process, after)
    process.kill()
    process.wait()
    assert stored(shell) >= finished
    shell("resume", "last", "--quiet")
    counting = "SELECT DISTINCT trial_id, sequence FROM trial_flat WHERE kind = 'measured' AND status = 'done'"
    assert shell.count(counting) == EXPECTED
    assert shell.count(f"SELECT sequence FROM ({counting}) GROUP BY sequence HAVING count(*) > 1") == 0
    left_out = shell.ask(
        "SELECT DISTINCT excluded_reason AS why FROM trial_flat WHERE kind = 'measured' AND status <> 'done'"
    )
    assert {row["why"] for row in left_out} <= {
        "round_cut_short: replayed whole",
        "interrupted: the process that ran it ended",
    }
    deadline = time.monotonic() + 20
    while workers_alive(shell) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not workers_alive(shell)


def test_ctrl_c_says_how_to_go_on(shell: Shell) -> None:
    process = shell.start("run", *LONG)
    wait_for(shell, process, 5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert "interrupted" in shell("status").stdout
    shell("resume", "--quiet")
    assert "done" in shell("status").stdout


TWO_ARMS = [*SIMULATED, "engine.effect=1.0,1.1", "design.rounds=6"]


def change(shell: Shell, *statements: str) -> None:
    """Makes of the stored runs what a crash, an interrupt or a refusal leaves."""
    connection = sqlite3.connect(shell.db)
    with connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in statements:
            connection.execute(statement)
    connection.close()


JUDGING = [
    ["audit", "last"],
    ["audit", "last", "--against", "claims"],
    ["audit", "last", "--format", "json"],
    ["report", "last", "-o", "page.html"],
    ["compare", "last", "0"],
]


@pytest.mark.parametrize("arguments", JUDGING, ids=" ".join)
def test_a_run_of_which_nothing_is_measured_is_one_line(shell: Shell, arguments: list[str]) -> None:
    shell("queue", "add", *TWO_ARMS)
    line = one_line(shell(*arguments, code=3))
    assert "(planned): nothing is measured yet; `interlace work` measures it" in line
    assert not (shell.folder / "page.html").exists()


def test_why_nothing_is_measured_is_stated_by_status(shell: Shell) -> None:
    shell("queue", "add", *TWO_ARMS)
    change(shell, "UPDATE run SET status = 'interrupted'")
    assert "nothing is measured yet; `interlace resume " in one_line(shell("audit", code=3))
    change(shell, "UPDATE run SET status = 'failed', note = 'no such' || char(10) || 'file'")
    assert "(failed): nothing was measured: no such" in one_line(shell("audit", code=3))
    change(
        shell,
        "UPDATE run SET status = 'planned', note = NULL",
        "UPDATE queue_entry SET state = 'failed', note = 'weights gone'",
    )
    assert "(failed): nothing was measured: weights gone" in one_line(shell("audit", code=3))
    change(shell, "UPDATE run SET status = 'planned'", "UPDATE queue_entry SET state = 'waiting'")
    shell("queue", "cancel", str(shell.ask("SELECT id FROM run")[0]["id"]))
    assert "(cancelled): nothing was measured" in one_line(shell("audit", code=3))


def test_an_unfinished_run_has_all_its_arms_and_passes_no_check(shell: Shell) -> None:
    shell("run", *TWO_ARMS, "--quiet")
    change(shell, "UPDATE run SET status = 'interrupted'", "DELETE FROM trial WHERE kind <> 'bracket'")
    said = " ".join(shell("audit").stdout.split())
    assert "effect=1.1: undecided (underpowered)" in said
    assert "no complete round yet" in said
    assert "Nothing to compare" not in said
    assert "(interrupted): not finished" in one_line(shell("audit", "--fail-on", "supported", code=3))
    assert "underpowered" in one_line(shell("audit", "--fail-on", "underpowered", code=1))
    shell("report", "-o", "page.html")
    shell("audit", "--against", "claims")


def test_resume_takes_what_was_left_unfinished(shell: Shell) -> None:
    shell("run", *TWO_ARMS, "--quiet")
    (first,) = [str(row["id"]) for row in shell.ask("SELECT id FROM run")]
    assert "nothing to resume" in one_line(shell("resume", code=2))
    assert f"run {first} is finished already" in shell("resume", first).stdout
    change(shell, "UPDATE run SET status = 'interrupted', note = 'interrupted by hand'")
    shell("run", *TWO_ARMS, "--quiet")
    shell("queue", "add", *TWO_ARMS)
    shell("resume", "last", "--quiet")
    states = shell.ask("SELECT id, status FROM run ORDER BY created_at, id")
    assert (states[0]["id"], [row["status"] for row in states]) == (first, ["done", "done", "planned"])
    shell("resume", str(states[2]["id"]), "--quiet")  # one that is named is begun, wherever it waits
    assert {str(row["status"]) for row in shell.ask("SELECT status FROM run")} == {"done"}
    assert "resume [OPTIONS] [RUN]" in shell("resume", "--help").stdout


def unread(shell: Shell, *arguments: str) -> tuple[int, str]:
    """The exit code and the errors of a command whose reader is gone before it says anything."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*INTERLACE, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, env=shell.env, cwd=shell.folder
    )
    os.close(writer)
    return done.returncode, done.stderr


def test_a_run_goes_on_when_nobody_reads_it(shell: Shell) -> None:
    assert unread(shell, "run", *TWO_ARMS) == (0, "")
    assert shell.ask("SELECT status FROM run") == [{"status": "done"}]
    change(shell, "UPDATE run SET status = 'interrupted'")
    assert unread(shell, "resume") == (0, "")
    assert shell.ask("SELECT status FROM run") == [{"status": "done"}]


def test_a_reader_that_has_had_enough_is_no_verdict(shell: Shell) -> None:
    shell("run", *TWO_ARMS, "--quiet")
    for style in ("table", "json"):
        assert unread(shell, "audit", "--format", style) == (0, "")
    for helping in (["--help"], ["run", "--help"], ["--version"]):
        assert unread(shell, *helping) == (0, "")
    assert unread(shell, "query", "SELECT * FROM trial_flat", "--format", "csv") == (0, "")
    assert unread(shell, "audit", "--fail-on", "supported")[0] == 1  # a verdict is one, read or not


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has this device")
def test_an_output_that_takes_nothing_is_one_line(shell: Shell) -> None:
    shell("run", *TWO_ARMS, "--quiet")
    for typed, code, words in (
        ("status >&-", 0, ""),
        ("status >/dev/full", 4, "the output: No space left on device; make room"),
        ("query 'SELECT * FROM trial_flat' --format csv >/dev/full", 4, "the output: No space left"),
        ("--help >/dev/full", 4, "the output: No space left on device; make room"),
        ("run --help >/dev/full", 4, "the output: No space left on device; make room"),
        ("audit nosuch 2>&-", 2, ""),
        ("audit nosuch 2>/dev/full", 2, ""),
    ):
        command = ["sh", "-c", f"{' '.join(INTERLACE)} {typed}"]
        done = subprocess.run(command, capture_output=True, text=True, env=shell.env, cwd=shell.folder, check=False)
        assert done.returncode == code, (typed, done.stderr)
        assert words in done.stderr
        assert len(done.stderr.splitlines()) <= 1, done.stderr


DROPPED = """
import signal
import time
from orchestrator.cli import keeping_interrupts
class Gone:
    def __del__(self):
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
with keeping_interrupts():
    try:
        Gone()
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_in_a_finaliser_is_not_dropped() -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


LONG_NAME = "a" * 300


def test_a_name_that_no_file_can_have_is_bad_input_for_every_command(shell: Shell) -> None:
    shell("run", *TWO_ARMS, "--quiet")
    for typed in (
        ("report", "last", "-o", LONG_NAME),
        ("db", "export", "last", "-o", LONG_NAME),
        ("db", "backup", LONG_NAME),
        ("db", "import", LONG_NAME),
        ("db", "import", f"{__file__}/x"),
        ("db", "merge", LONG_NAME),
        ("query", f"{LONG_NAME}.sql"),
        ("plan", *ENGINE, "workload=prompts", f"workload.file={LONG_NAME}"),
        ("status", "--db", f"/tmp/{LONG_NAME}"),
    ):
        said = shell(*typed, code=2).stderr.splitlines()
        assert said[-1].startswith(("interlace: ", "Error: ")), said


def test_a_current_folder_that_was_removed_is_one_line(shell: Shell) -> None:
    command = ["sh", "-c", f"mkdir gone; cd gone; rmdir ../gone; {' '.join(INTERLACE)} plan {' '.join(TWO_ARMS)}"]
    done = subprocess.run(command, capture_output=True, text=True, env=shell.env, cwd=shell.folder, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the current folder no longer exists; change to another one" in done.stderr


def test_a_refusal_without_a_files_name_is_not_the_outputs(shell: Shell) -> None:
    code = (
        "import errno, sys; from db import location; from orchestrator import cli\n"
        "def refused(*_): raise PermissionError(errno.EPERM, 'of a process')\n"
        "location.database_path = refused; sys.argv = ['interlace', 'db', 'path']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=shell.env, check=False)
    assert done.returncode == 1
    assert "the output" not in done.stderr
    assert "of a process" in done.stderr


@pytest.mark.parametrize("setting", ["openai_http engine.url", "mlx_lm_server engine.attach"])
def test_a_port_that_there_is_not_is_refused_in_the_plan(shell: Shell, setting: str) -> None:
    engine, _, key = setting.partition(" ")
    line = one_line(shell("plan", "checkpoint=dummy-tiny", f"engine={engine}", f"{key}=http://127.0.0.1:99999", code=2))
    assert "give an address such as" in line


def test_a_loop_of_links_is_no_database(shell: Shell) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        (shell.folder / one).symlink_to(shell.folder / other)
    shell.env = shell.env | {"INTERLACE_DB": str(shell.folder / "a")}
    one_line(shell("status", code=2))
    assert "unable to open" in one_line(shell.process("run", *TWO_ARMS, "--quiet", code=4))


def test_a_childs_broken_pipe_is_no_quiet_end(shell: Shell) -> None:
    code = (
        "import errno, sys; from db import location; from orchestrator import cli\n"
        "def broken(*_): raise BrokenPipeError(errno.EPIPE, 'of a child')\n"
        "location.database_path = broken; sys.argv = ['interlace', 'db', 'path']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=shell.env, check=False)
    assert done.returncode == 1
    assert "a pipe broke" in done.stderr


def test_a_live_run_is_not_run_twice(shell: Shell) -> None:
    process = shell.start("run", *LONG)
    wait_for(shell, process, 5)
    line = one_line(shell("resume", "last", code=4))
    assert str(process.pid) in line
    process.kill()
    process.wait()


def test_editing_a_file_later_changes_nothing(shell: Shell) -> None:
    """The plan is frozen before the first trial: a resumed run asks what the first half asked."""
    file = shell.folder / "mine.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "first version"}]}) + "\n", encoding="utf-8")
    process = shell.start(
        "run", *ENGINE, *MANY, "workload=prompts", "workload.file=mine.jsonl", "workload.max_tokens=8"
    )
    wait_for(shell, process, 10)
    process.kill()
    process.wait()
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "second version"}]}), encoding="utf-8")
    shell("resume", "--quiet")
    assert shell.count("SELECT DISTINCT prompt_sha256 FROM generation") == 1


def test_runs_one_after_the_other_could_be_drift_and_history_reports_it(shell: Shell) -> None:
    """Three settings in three runs, and the first once more: nothing there can tell a setting from the machine."""
    for effect in ("1.0", "1.1", "1.2", "1.0"):  # two in between: one could be in the very middle, where no drift tells
        shell("run", *SIMULATED, f"engine.effect={effect}", "design.rounds=6", "--quiet")
    said = " ".join(shell("history", "--simulated").stdout.split())
    assert "could be drift" in said
    assert "an hour would explain the difference" in said
    assert "against itself shows" in said
    values = json.loads(shell("history", "--simulated", "--format", "json").stdout)
    assert [len(one["points"]) for one in values["series"]] == [2, 1, 1]
    assert len(values["explanations"]) == 2
    pasted = shell("history", "--simulated", "--format", "markdown").stdout
    assert "| run | started (UTC) | end\\_to\\_end\\_tps |" in pasted


def test_two_runs_are_related_through_their_control_only(shell: Shell) -> None:
    shell("run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=8", "--quiet")
    shell("run", *SIMULATED, "engine.effect=1.0,1.3", "design.rounds=8", "design.seed=3", "--quiet")
    runs = [str(row["id"]) for row in shell.ask("SELECT id FROM run ORDER BY created_at")]
    said = shell("compare", *runs).stdout
    assert "unknown: measure both arms in one run" in " ".join(said.split())
    values = json.loads(shell("compare", *runs, "--format", "json").stdout)
    assert values["runs"] == runs
    assert f"| {values['relations'][0]['ratio']:.3f} |" in shell("compare", *runs, "--format", "markdown").stdout
    assert "same run" in one_line(shell("compare", runs[0], runs[0], code=2))
    shell("run", *SIMULATED, "engine.effect=1.2,1.3", "design.rounds=8", "--quiet")
    assert "missing: a shared control" in one_line(shell("compare", runs[0], "last", code=2))


def test_two_runs_know_what_evenings_differ_by_once_there_are_others(shell: Shell) -> None:
    for seed in range(5):
        shell("run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=6", f"design.seed={seed}", "--quiet")
    runs = [str(row["id"]) for row in shell.ask("SELECT id FROM run ORDER BY created_at")]
    said = " ".join(shell("compare", runs[0], runs[1]).stdout.split())
    assert "one effect differs between evenings by up to" in said
    assert "no clear difference" in said


def test_results_stand_beside_claims(shell: Shell) -> None:
    shell("run", *SIMULATED, "engine.acceptance=null,0.7", "engine.effect=1.0", "design.rounds=8", "--quiet")
    said = shell("audit", "last", "--against", "claims").stdout
    assert "speculation_qwen35b_m4" in said
    assert "differs (claimed against measured): hardware" in " ".join(said.split())
    assert "no such claim" in one_line(shell("audit", "last", "--against", "nonsense", code=2))
