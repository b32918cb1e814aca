"""The two source articles' situations, run end to end on simulated machines: the audit's answer."""

from pathlib import Path

import pytest

from db.frames import trials
from db.session import open_database
from orchestrator.audit import AuditResult, Comparison
from orchestrator.errors import InputError
from orchestrator.judging import judge_run
from orchestrator.plan import Plan
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from orchestrator.statistics.unrandomised import explain_by_drift
from orchestrator.stored_run import StoredRun
from workers.machine.host import read_host

from .plans import arm, plan, prompt

PROMPTS = tuple(prompt(number, prompt_class="code") for number in range(2))


def audit(planned: Plan, tmp_path: Path) -> AuditResult:
    database = open_database(f"sqlite:///{tmp_path / 'article.db'}")
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    run_recorded(recorder, observer=Observer())
    return judge_run(StoredRun.load(database, recorder.run_id)).result


def over_all(result: AuditResult) -> dict[str, Comparison]:
    return {one.treatment: one for one in result.comparisons if one.over_all}


def test_a_machine_that_loses_a_third_of_its_speed_makes_no_setting_look_better(tmp_path: Path) -> None:
    """Decode mode and chunked prefill: four runs in a row made two confident paragraphs, both false."""
    hot = {"drift": "linear", "drift_size": -0.34}
    arms = [arm(name, **hot) for name in ("defaults", "decode mode", "chunked prefill")]
    result = audit(plan(*arms, prompts=PROMPTS, rounds=8), tmp_path)
    assert result.drift == pytest.approx(-0.34, abs=0.05)
    for one in over_all(result).values():
        assert one.verdict in ("could_be_drift", "no_difference")


def test_the_same_settings_in_four_runs_one_after_the_other_are_drift_and_say_how_much(tmp_path: Path) -> None:
    """As it was done by hand: A, B, C, and A again."""
    import pandas as pd

    hours = [0.0, 0.5, 1.0, 1.5]
    runs = pd.DataFrame(
        {
            "arm": ["defaults", "decode mode", "chunked prefill", "defaults"],
            "started_at": [pd.Timestamp("2026-09-08", tz="UTC") + pd.Timedelta(hours=h) for h in hours],
            "value": [103.8, 90.0, 79.0, 68.5],
        }
    )
    explained = explain_by_drift(runs, control="defaults")
    assert {found.treatment for found in explained} == {"decode mode", "chunked prefill"}
    for found in explained:
        assert found.seen_drift_per_hour is not None
        assert found.seen_drift_per_hour < -0.15
        assert "drift" in found.text


def test_fewer_bits_that_win_every_round_of_a_warming_machine_are_supported(tmp_path: Path) -> None:
    """6 bits fell from 123 to 104 tokens a second over the rounds; 4 bits won every one of them."""
    warm = {"drift": "linear", "drift_size": 104 / 123 - 1}
    result = audit(plan(arm("6-bit", **warm), arm("4-bit", effect=1.22, **warm), prompts=PROMPTS, rounds=8), tmp_path)
    one = over_all(result)["4-bit"]
    assert (one.verdict, one.direction, one.wins) == ("supported", "faster", 8)
    assert one.ci_low is not None
    assert one.ci_high is not None
    assert one.ci_low <= 1.22 <= one.ci_high
    assert result.drift == pytest.approx(104 / 123 - 1, abs=0.05)


def test_an_engine_that_silently_decodes_plainly_is_not_slow_but_not_engaged(tmp_path: Path) -> None:
    """The first benchmark measured nothing: the server answered 200 and speculated never."""
    arms = (arm("plain"), arm("dflash", acceptance=0.7, effect=2.4, fallback=True))
    recorded = audit(plan(*arms, prompts=PROMPTS, evidence="record"), tmp_path)
    one = over_all(recorded)["dflash"]
    assert one.verdict == "not_engaged"
    assert one.engaged_share == 0.0
    with pytest.raises(InputError, match="arm dflash failed its preflight: not_engaged"):
        audit(plan(*arms, prompts=PROMPTS), tmp_path / "again")


def test_one_run_each_is_underpowered_whatever_the_gap(tmp_path: Path) -> None:
    """Block 16 came out 17 % behind block 8, with one run each."""
    arms = (arm("block 8", acceptance=0.6, block_size=8), arm("block 16", acceptance=0.6, block_size=16, effect=0.83))
    one = over_all(audit(plan(*arms, rounds=1), tmp_path))["block 16"]
    assert one.verdict == "underpowered"
    assert one.ratio == pytest.approx(0.83, abs=0.1)


def test_the_engine_that_wins_the_short_prompt_can_lose_the_second_turn(tmp_path: Path) -> None:
    """Speculation with a cache of its own: fast at decoding, a full prefill every turn."""
    long_answer = prompt(turns=2)
    arms = (
        arm("mtp", acceptance=0.6, prefill_tps=50.0),
        arm("dflash", acceptance=0.6, effect=1.37, prefill_tps=50.0, prefix_cache=False),
    )
    planned = plan(*arms, prompts=(long_answer,), rounds=8, metric="ttft_s")
    database = open_database(f"sqlite:///{tmp_path / 'turns.db'}")
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    run_recorded(recorder, observer=Observer())
    result = judge_run(StoredRun.load(database, recorder.run_id)).result
    turns = {one.turn: one for one in result.comparisons if one.turn is not None}
    assert turns[1].verdict == "supported"
    assert turns[1].direction == "slower"
    rows = trials(database, recorder.run_id)
    second = rows[(rows["turn"] == 1) & (rows["kind"] == "measured")]
    assert (second[second["arm"] == "dflash"]["cached_tokens"] == 0).all()
    assert (second[second["arm"] == "mtp"]["cached_tokens"] > 0).all()
