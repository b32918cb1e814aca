"""README's table of seen Macs is made of the reports alone."""

import copy
import json
from pathlib import Path

import pytest

from docs.seen_macs import README, reports, table, with_table
from orchestrator.selftest import replay
from tests.orchestrator.self_reports import MINIMAL


def test_readme_shows_what_the_reports_say() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_table(text, reports()) == text


def test_without_a_report_the_page_states_that() -> None:
    assert table([]).startswith("No report of a real Mac has come yet")


def test_a_report_is_a_line(tmp_path: Path) -> None:
    body = copy.deepcopy(MINIMAL)
    body["facts"] |= {"memory_bytes": 128 * 2**30, "python_origin": "uv"}
    body["checks"] += [
        {"name": "clocks", "result": "disagrees", "ours": "1", "other": "2"},
        {"name": "thermal level", "result": "unreadable", "ours": "no", "other": ""},
    ]
    body["trials"]["aa"] = {"ratio": 1.0042, "ci_low": 0.99, "ci_high": 1.02, "rounds": 10}
    (tmp_path / "m5.json").write_text(json.dumps(body), encoding="utf-8")
    lines = table(reports(tmp_path)).splitlines()
    assert lines[2:] == ["| Apple M5, 128 GB | 26.1 | 3.13.1, uv | 0.32.4 | 1, 1, 1 | 1.004 |"]


def test_a_report_cannot_write_markdown_of_its_own() -> None:
    body = copy.deepcopy(MINIMAL)
    body["facts"] |= {"chip": "Apple M5 | ![x](http://x.example/p.png) <script>", "os": "macOS 26.1\n# Head"}
    (line,) = table([replay(json.dumps(body))]).splitlines()[2:]
    assert line.count("|") == 7
    assert not any(sign in line for sign in "[]<>#!:/")


def test_readme_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="README lacks"):
        with_table("# interlace\n", [])
