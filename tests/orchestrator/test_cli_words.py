"""The command line repeats a few lists: importing their modules would cost `--help` its speed. They stay equal."""

from orchestrator import audit, cli
from orchestrator.statistics.observations import METRICS
from orchestrator.statistics.verdicts import WORDS
from orchestrator.views import audit_drawing, audit_view
from workers.drift import PROFILES


def test_the_lists_of_the_command_line_are_those_of_the_code() -> None:
    assert set(cli.VERDICTS) == set(WORDS) == set(audit_drawing.VERDICT_STYLES)
    assert set(cli.METRICS) == set(METRICS) == set(audit_view.METRIC_WORDS)
    assert set(cli.PROFILES) == set(PROFILES)
    assert audit_view.RUN_DRIFT == audit.RUN_DRIFT
