"""The command line repeats a few lists: importing their modules would cost `--help` its speed. They stay equal."""

import pytest

from orchestrator import audit, cli
from orchestrator.statistics.observations import METRICS
from orchestrator.statistics.verdicts import WORDS
from orchestrator.views import audit_drawing, audit_view
from workers.machine.drift import PROFILES


def test_the_lists_of_the_command_line_are_those_of_the_code() -> None:
    assert set(cli.VERDICTS) == set(WORDS) == set(audit_drawing.VERDICT_STYLES)
    assert set(cli.METRICS) == set(METRICS) == set(audit_view.METRIC_WORDS)
    assert set(cli.PROFILES) == set(PROFILES)
    assert audit_view.RUN_DRIFT == audit.RUN_DRIFT


def test_the_words_of_an_error_do_nothing_to_the_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["interlace", "plan", "x\x1b[2Jy=1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capfd.readouterr().err
    assert "\x1b" not in said
    assert "error at: '\u241b'" in said
