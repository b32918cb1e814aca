"""The summary of a night: the file, and the notifications."""

import datetime as dt
import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from db.escaping import in_markdown
from orchestrator.queue.night import Ended
from orchestrator.queue.notification import notify
from orchestrator.queue.summary import Summary, markdown, write_summary

END = dt.datetime(2026, 11, 30, 5, 40, tzinfo=dt.UTC)


def ended(state: str, **values: object) -> Ended:
    settings = {
        "run_id": "01a2-7f",
        "experiment": "blocks",
        "note": None,
        "started_at": END - dt.timedelta(hours=2),
        "ended_at": END,
        "verdicts": "",
        "problems": (),
    }
    return Ended(state=state, **(settings | values))  # type: ignore[arg-type]  # as the test names them


SUMMARY = Summary(
    host="mac",
    database="/data/interlace.db",
    began_at=END - dt.timedelta(hours=8),
    ended_at=END,
    why="the time was up",
    runs=[
        ended(
            "done", verdicts="b against a: supported, faster, 1.08x.", problems=("invalid b, round 3: crashed: *x*",)
        ),
        ended("failed", note="preflight: arm b: not_engaged"),
    ],
    waiting=1,
)


def test_the_file_says_what_ran_what_it_showed_and_where_to_look(tmp_path: Path) -> None:
    path = write_summary(SUMMARY, tmp_path / "interlace.db")
    assert path == tmp_path / "nights" / "2026-11-30T0540Z.md"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# interlace on mac: 1 of 2 runs done, 1 failed, 1 left in the queue\n")
    assert "it ended because the time was up." in text
    assert "b against a: supported, faster, 1.08x." in text
    assert r"- invalid b, round 3: crashed: \*x\*" in text
    assert r"preflight: arm b: not\_engaged." in text
    assert "interlace audit 01a2-7f" in text


def test_the_last_line_names_what_failed_and_left_the_queue() -> None:
    runs = [ended("failed"), ended("done", run_id="01a2-80"), ended("failed", run_id="01a2-81")]
    last = markdown(replace(SUMMARY, runs=runs)).splitlines()[-1]
    assert last == (
        "Failed runs left the queue. Once the cause is removed: `interlace resume 01a2-7f`, `interlace resume 01a2-81`."
    )
    assert "resume" not in markdown(replace(SUMMARY, runs=runs[1:2]))


def test_the_zone_of_the_times_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        text = markdown(SUMMARY)
        clocks_set = markdown(replace(SUMMARY, began_at=dt.datetime(2026, 11, 1, 4, 0, tzinfo=dt.UTC)))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "From 2026-11-29 16:40 to 2026-11-30 00:40 (EST); it ended" in text
    assert text.count("EST") == 1
    assert "(EDT, then EST); it ended" in clocks_set


def test_nothing_that_others_wrote_acts_in_the_file() -> None:
    nasty = "@who #12 http://t/x ![i](x) <b> &lt;\x1b[2J\n- item"
    run = ended("failed", experiment=nasty, note=nasty, verdicts=nasty, problems=(nasty,))
    text = markdown(replace(SUMMARY, host=nasty, why=nasty, database=nasty, runs=[run]))
    escaped = in_markdown(nasty)
    assert text.count(escaped) == 7
    rest = text.replace(escaped, "")
    assert not any(each in rest for each in ("@", "http", "[", "<", "&", "\x1b"))


def test_two_nights_that_end_in_one_minute_keep_a_file_each(tmp_path: Path) -> None:
    paths = [write_summary(SUMMARY, tmp_path / "interlace.db").name for _ in range(3)]
    assert paths == ["2026-11-30T0540Z.md", "2026-11-30T0540Z-2.md", "2026-11-30T0540Z-3.md"]


class Hook(http.server.BaseHTTPRequestHandler):
    """Keeps what it is sent; /broken answers 500."""

    received: list[dict[str, object]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append(json.loads(body))
        self.send_response(500 if self.path == "/broken" else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def hook() -> Iterator[http.server.HTTPServer]:
    Hook.received = []
    server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def told(path: Path, **environment: str) -> list[str]:
    return notify("one line", markdown(SUMMARY), path, exit_code=3, environment=environment)


def test_a_webhook_gets_the_line_the_summary_and_the_code(hook: http.server.HTTPServer, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{hook.server_port}/secret"
    assert told(tmp_path, INTERLACE_NOTIFY_WEBHOOK=url) == []
    assert Hook.received == [{"text": "one line", "summary": markdown(SUMMARY), "exit_code": 3}]


def test_a_webhook_that_fails_is_a_note_without_its_address(hook: http.server.HTTPServer, tmp_path: Path) -> None:
    broken = f"http://127.0.0.1:{hook.server_port}/broken"
    assert told(tmp_path, INTERLACE_NOTIFY_WEBHOOK=broken) == ["INTERLACE_NOTIFY_WEBHOOK: answered 500"]
    (problem,) = told(tmp_path, INTERLACE_NOTIFY_WEBHOOK="http://127.0.0.1:1/token-abc")
    assert problem.startswith("INTERLACE_NOTIFY_WEBHOOK: not reached")
    assert "token-abc" not in problem
    assert told(tmp_path, INTERLACE_NOTIFY_WEBHOOK="file:///etc/passwd") == [
        "INTERLACE_NOTIFY_WEBHOOK: is not a valid http or https address"
    ]


def test_a_command_gets_the_file_and_the_text(tmp_path: Path) -> None:
    script = tmp_path / "tell me.py"
    script.write_text("import pathlib, sys; pathlib.Path(sys.argv[1] + '.seen').write_text(sys.stdin.read())")
    summary = tmp_path / "summary.md"
    assert told(summary, INTERLACE_NOTIFY_COMMAND=f"{sys.executable} '{script}'") == []
    assert (tmp_path / "summary.md.seen").read_text() == markdown(SUMMARY)


@pytest.mark.parametrize(
    ("command", "problem"),
    [("false", "ended with 1"), ("/no/such/program", "cannot be run"), ("'unclosed", "is not a valid command line")],
)
def test_a_command_that_fails_is_a_note(tmp_path: Path, command: str, problem: str) -> None:
    (found,) = told(tmp_path, INTERLACE_NOTIFY_COMMAND=command)
    assert found.startswith(f"INTERLACE_NOTIFY_COMMAND: {problem}")


def test_nothing_is_sent_that_nobody_configured(tmp_path: Path) -> None:
    assert told(tmp_path) == []
