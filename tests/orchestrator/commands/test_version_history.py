"""Changes of an environment over time, and the bisection that would prove it, ready to paste."""

import datetime as dt
import json
import shlex

import pytest

from orchestrator.commands.version_history import with_proofs
from orchestrator.configuration.asked import overrides_of
from orchestrator.configuration.compose import make_plan
from orchestrator.judging import point_of
from orchestrator.report.relations import build_history
from orchestrator.statistics.history import Change, Point, Series, change_points, undeclared_at

START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def row(
    number: int, *, mlx_lm: str = "0.31.0", value: float = 100.0, environment: str | None = None
) -> dict[str, object]:
    packages = {"mlx": "0.32.0", "mlx-lm": mlx_lm, "interlace": f"0.{number}", "mlx-metal build": "x", "mtplx": None}
    return {
        "run_id": f"run-{number:02}",
        "created_at": pd_time(number),
        "value": value,
        "mlx_version": "0.32.0",
        "mlx_lm_version": mlx_lm,
        "engine_version": mlx_lm,
        "os_build": "25A1",
        "checkpoint_digest": "d",
        "interlace_version": "0.1.0",
        "packages": json.dumps(packages),
        "environment": environment,
    }


def pd_time(number: int) -> object:
    import pandas as pd

    return pd.Timestamp(START + dt.timedelta(days=number))


def history(environment: str | None = None) -> list[Point]:
    """Twelve runs on mlx-lm 0.31.0, then twelve on 0.31.3, which is slower."""
    wander = [0.3, -0.2, 0.1, -0.3, 0.2, 0.0]
    return [
        point_of(
            row(
                number,
                mlx_lm="0.31.0" if number < 12 else "0.31.3",
                value=(100.0 if number < 12 else 92.0) + wander[number % 6],
                environment=environment,
            )
        )
        for number in range(24)
    ]


def the_change(points: list[Point]) -> Change:
    (change,) = change_points(points)
    return change


def test_one_release_is_one_cause() -> None:
    """mlx-lm is recorded as itself and as the engine: that is no confound."""
    change = the_change(history())
    assert (change.verdict, change.causes) == ("changed_with", ("mlx_lm_version 0.31.0 -> 0.31.3",))


def test_what_moved_undeclared_is_named() -> None:
    points = history()
    assert [str(each) for each in undeclared_at(the_change(points), points)] == ["mlx-lm 0.31.0 -> 0.31.3"]


def test_a_declared_environment_offers_nothing() -> None:
    points = history(environment="latest")
    assert undeclared_at(the_change(points), points) == ()


def test_history_marks_the_run_and_offers_the_command() -> None:
    points = tuple(history())
    change = the_change(list(points))
    command = "interlace bisect mlx-lm 0.31.0 0.31.3 checkpoint=smollm2-8bit"
    series = Series(name="plain", arm="plain", points=points, changes=(change,), proofs={change.after: (command,)})
    lines = build_history([series], [], "end_to_end_tps", {}).sections[0].lines
    assert "installed before run run-12: mlx-lm 0.31.0 -> 0.31.3." in lines
    assert f"to prove it: {command}" in lines


@pytest.mark.parametrize(
    "overrides",
    [
        ["checkpoint=smollm2-4bit"],
        ["checkpoint=smollm2-4bit", "engine=mlx_lm_draft", "engine.draft=smollm2-8bit", "engine.block_size=5"],
        ["engine=mlx_lm", "engine.kv_bits=8", "engine.environment={OMP_NUM_THREADS: '2'}", "sampling=sampled"],
        ["workload=quick", "workload.max_tokens=7", "engine.prefix_cache=false"],
    ],
)
def test_an_arm_is_described_by_overrides_that_make_it_again(overrides: list[str]) -> None:
    plan = make_plan(overrides).plan
    again = make_plan(overrides_of(plan.arms[0], plan)).plan
    assert again.arms[0].config_sha256 == plan.arms[0].config_sha256
    assert again.workload_sha256 == plan.workload_sha256


def test_the_command_is_one_that_the_shell_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(["engine.environment={A: 'b c'}"]).plan
    points = history()

    class Stored:
        def __init__(self) -> None:
            self.plan = plan

    monkeypatch.setattr("orchestrator.commands.version_history.StoredRun.load", lambda database, run_id: Stored())
    change = the_change(points)
    series = Series(name="plain", arm=plan.arms[0].name, points=tuple(points), changes=(change,))
    (command,) = with_proofs(None, series, "decode_tps").proofs[change.after]  # type: ignore[arg-type]
    words = shlex.split(command)
    assert words[:5] == ["interlace", "bisect", "mlx-lm", "0.31.0", "0.31.3"]
    assert words[-1] == "design.metric=decode_tps"
    assert make_plan(words[5:]).plan.arms[0].engine["environment"] == {"A": "b c"}
