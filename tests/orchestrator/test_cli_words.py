"""The words of the command line: declared once, and harmless to the terminal."""

import pytest

from conf.schema import Metric
from orchestrator import cli
from orchestrator.importers.formats import FORMATS
from orchestrator.report.charts.theme import TONES
from orchestrator.report.render_terminal import STYLES
from orchestrator.vocabulary import IMPORT_FORMATS, METRICS, VERDICTS


def test_every_word_of_the_vocabulary_can_be_drawn_and_read() -> None:
    assert {verdict.tone for verdict in VERDICTS.values()} == set(STYLES) == set(TONES)
    assert [each.name for each in Metric] == list(METRICS)
    assert set(IMPORT_FORMATS) == {each.NAME for each in FORMATS}


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
