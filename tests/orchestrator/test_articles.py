"""The situations of the two source articles, as the audit sees them."""

from typing import Any

import pandas as pd

from orchestrator.audit import audit
from orchestrator.statistics.unrandomised import explain_by_drift
from tests.orchestrator.flat import FlatRun, changed


def verdicts(frame: pd.DataFrame, control: str) -> dict[str, Any]:
    result = audit(frame, control=control, metric="end_to_end_tps")
    return {one.treatment: one for one in result.comparisons if one.over_all}


def test_four_bits_that_won_every_round_while_the_machine_slowed_down() -> None:
    # 6 bits fell from 123 to 104 tokens a second over the rounds; 4 bits, some 20 % faster, won each of them.
    frame = FlatRun(effects={"6bit": 1.0, "4bit": 1.22}, rounds=8, drift=104 / 123 - 1, noise=0.01).frame()
    found = verdicts(frame, "6bit")["4bit"]
    assert (found.verdict, found.direction, found.wins) == ("supported", "faster", 8)


def test_four_rounds_of_it_are_too_few_for_the_level() -> None:
    frame = FlatRun(effects={"6bit": 1.0, "4bit": 1.22}, rounds=4, drift=104 / 123 - 1, noise=0.01).frame()
    found = verdicts(frame, "6bit")["4bit"]
    assert (found.verdict, found.wins) == ("underpowered", 4)


def test_a_speculation_that_was_not_running() -> None:
    # The server answered every request on the plain engine, as fast as the control.
    frame = FlatRun(effects={"plain": 1.0, "dflash": 1.0}, drafting=["dflash"]).frame()
    found = verdicts(changed(frame, frame["arm"] == "dflash", engaged=False, useful=False), "plain")["dflash"]
    assert (found.verdict, found.engaged_share) == ("not_engaged", 0.0)
    assert found.reasons[0].text == "dflash: not engaged in 40 of 40 generations"


def test_block_16_behind_block_8_with_one_run_each() -> None:
    frame = FlatRun(effects={"block 8": 1.0, "block 16": 0.83}, rounds=1, drift=-0.34).frame()
    found = verdicts(frame, "block 8")["block 16"]
    assert (found.verdict, found.rounds, found.ci_low, found.ci_high) == ("underpowered", 1, None, None)


def test_a_drift_of_34_percent_that_looked_like_a_setting() -> None:
    start = pd.Timestamp("2026-03-01T20:00:00Z")
    values = [("as before", 0, 157.3), ("setting", 45, 128.0), ("as before", 90, 103.8)]
    runs = pd.DataFrame(
        [(arm, start + pd.Timedelta(minutes=minutes), value) for arm, minutes, value in values],
        columns=["arm", "started_at", "value"],
    )
    (found,) = explain_by_drift(runs, control="as before")
    assert found.seen_drift_per_hour is not None
    assert -0.26 < found.seen_drift_per_hour < -0.22
    # Set between the two control runs, the setting does nothing that the drift does not do.
    assert abs(found.ratio - 1) < 0.01


def test_drift_alone_is_never_called_an_effect_of_interleaved_arms() -> None:
    frame = FlatRun(effects={"as before": 1.0, "setting": 1.0}, rounds=8, drift=-0.34, noise=0.01).frame()
    assert verdicts(frame, "as before")["setting"].verdict in ("could_be_drift", "no_difference")
