"""Each figure of a real run, computed again from its rows with SQL and pencil: what `interlace audit` says is what the
rows hold."""

import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from db.session import open_database, read_only
from orchestrator.effects import estimate_effect
from orchestrator.findings.values import Findings, VerifyCost
from orchestrator.judging import judge
from orchestrator.meaning import findings
from orchestrator.plan import load
from orchestrator.stored_run import StoredRun
from tests.orchestrator.traced import load_into

COUNTS = "trial.kind = 'measured' AND trial.status = 'done' AND trial.excluded_reason IS NULL"
GAPS = f"""
SELECT arm.name AS arm, generation.prompt_class AS class, (stamp.value - before.value) / 1e6 AS seconds
FROM generation JOIN trial ON trial.id = generation.trial_id JOIN arm ON arm.id = trial.arm_id
JOIN json_each(generation.stamps_us) AS stamp
JOIN json_each(generation.stamps_us) AS before ON before.key = stamp.key - 1
WHERE {COUNTS}
"""
# Tokens committed up to and with each step; where they add up to all tokens, the first step is the first pass.
ROUNDS = f"""
WITH step AS (
    SELECT arm.name AS arm, generation.id AS id, generation.prompt_class AS class, step.key AS number,
        json_array_length(generation.stamps_us) AS tokens, generation.stamps_us AS stamps,
        json_extract(step.value, '$[0]') AS drafted, json_extract(step.value, '$[1]') AS accepted,
        json_extract(step.value, '$[2]') AS committed,
        sum(json_extract(step.value, '$[2]')) OVER (PARTITION BY generation.id ORDER BY step.key) AS upto,
        sum(json_extract(step.value, '$[2]')) OVER (PARTITION BY generation.id) AS total
    FROM generation JOIN trial ON trial.id = generation.trial_id JOIN arm ON arm.id = trial.arm_id
    JOIN json_each(generation.steps) AS step
    WHERE {COUNTS}
)
SELECT arm, class, drafted, accepted, committed,
    (json_extract(stamps, '$[' || (tokens - total + upto - 1) || ']')
        - json_extract(stamps, '$[' || (tokens - total + upto - committed - 1) || ']')) / 1e6 AS seconds
FROM step
WHERE NOT (total = tokens AND number = 0)
"""


class Run:
    """The stored run and what is found of it."""

    def __init__(self, database: Engine, run_id: str) -> None:
        self.database, self.run_id = database, run_id
        self.plan = load(str(self.ask("SELECT plan FROM run")[0]["plan"]))
        stored = StoredRun.load(database, run_id)
        self.trials = stored.trials
        self.result = judge(self.trials, self.plan)
        self.findings: Findings = findings(stored, self.result)

    def ask(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        with read_only(self.database) as session:
            return [dict(row) for row in session.execute(sa.text(sql), params).mappings()]

    @property
    def spec(self) -> VerifyCost:
        """The speculative arm, over all classes."""
        return next(cost for cost in self.findings.verify_costs if cost.prompt_class is None)

    def rounds(self) -> list[dict[str, Any]]:
        return [row for row in self.ask(ROUNDS) if row["arm"] == self.spec.arm]


def stored(name: str, folder: Path) -> Run:
    database = open_database(f"sqlite:///{folder / 'traced.db'}")
    return Run(database, load_into(database, name))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return stored("quickstart", tmp_path_factory.mktemp("quickstart"))


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return stored("passes", tmp_path_factory.mktemp("passes"))


def test_the_run_is_of_a_real_model(run: Run) -> None:
    assert not run.findings.simulated
    assert len(run.findings.verify_costs) > 1


def test_a_plain_step(run: Run) -> None:
    assert run.findings.verify_costs
    for cost in run.findings.verify_costs:
        gaps = [
            row["seconds"]
            for row in run.ask(GAPS)
            if row["arm"] == cost.plain_arm and cost.prompt_class in (None, row["class"])
        ]
        assert cost.plain_s.value == pytest.approx(median(gaps))


def test_a_verify_round(run: Run) -> None:
    by_drafted: dict[int, list[float]] = defaultdict(list)
    for row in run.rounds():
        by_drafted[row["drafted"]].append(row["seconds"])
    count = sum(map(len, by_drafted.values()))
    assert run.spec.rounds_timed == count
    step_s = sum(median(seconds) * len(seconds) for seconds in by_drafted.values()) / count
    assert run.spec.step_s == pytest.approx(step_s)
    assert run.spec.plain_s.value is not None
    assert run.spec.round_cost.value == pytest.approx(step_s / run.spec.plain_s.value)


def test_rounds_and_the_first_pass_are_the_whole_answer(run: Run) -> None:
    """Return the tokens and the seconds of decode_tps, from the rounds."""
    per_answer = run.ask(
        f"SELECT sum((generation.total_s - generation.ttft_s) * generation.decode_tps) AS tokens FROM generation"
        f" JOIN trial ON trial.id = generation.trial_id JOIN arm ON arm.id = trial.arm_id"
        f" WHERE {COUNTS} AND arm.name = :arm AND generation.steps IS NOT NULL",
        arm=run.spec.arm,
    )
    assert sum(row["committed"] for row in run.rounds()) == pytest.approx(per_answer[0]["tokens"])


def test_what_is_accepted(run: Run) -> None:
    rows = run.rounds()
    assert run.spec.accept_length == pytest.approx(fmean(row["committed"] for row in rows))
    chance, found = 1.0, []
    for place in range(1, max(row["drafted"] for row in rows) + 1):
        came = [row for row in rows if row["drafted"] >= place and row["accepted"] >= place - 1]
        # A round without the target's own token was cut by the answer's end: nothing was refused there.
        tried = [row for row in came if row["accepted"] >= place or row["committed"] > row["accepted"]]
        if not tried:
            break
        chance *= sum(row["accepted"] >= place for row in tried) / len(tried)
        found.append(chance)
    assert run.spec.proposing == fmean(row["drafted"] > 0 for row in rows)
    known = run.spec.acceptance_by_position[: len(found)]
    assert known == pytest.approx(tuple(found))


def test_the_time_of_a_pass(passes: Run) -> None:
    widths = {row["name"]: row["block_size"] for row in passes.ask("SELECT name, block_size FROM arm")}
    seconds: dict[int, list[float]] = defaultdict(list)
    for row in passes.ask(GAPS):
        seconds[widths[row["arm"]]].append(row["seconds"])
    (curve,) = passes.findings.pass_curves
    assert dict(curve.seconds) == pytest.approx({width: median(each) for width, each in seconds.items()})
    one = median(seconds[1])
    assert dict(curve.cost) == pytest.approx({width: median(each) / one for width, each in seconds.items()})
    assert passes.findings.verify_costs == ()  # nothing is drafted there


def test_the_measured_ratio(run: Run) -> None:
    """From one value per trial: the decode rates of its round, the control's second entry under a name of its own."""
    rows = run.ask(
        f'SELECT round."index" AS round, trial.position AS position, generation.prompt_id AS prompt,'
        f" CASE WHEN trial.is_aa THEN 'A/A' ELSE arm.name END AS arm, generation.decode_tps AS value"
        f" FROM generation JOIN trial ON trial.id = generation.trial_id JOIN arm ON arm.id = trial.arm_id"
        f' JOIN round ON round.id = trial.round_id WHERE {COUNTS} ORDER BY round."index", trial.position'
    )
    assert run.spec.plain_arm is not None
    effect = estimate_effect(pd.DataFrame(rows), treatment=run.spec.arm, control=run.spec.plain_arm)
    assert run.spec.measured is not None
    assert run.spec.measured.ratio == pytest.approx(effect.ratio)
    assert run.spec.measured.rounds == effect.rounds
    assert run.spec.measured.p_value == pytest.approx(effect.p_value)


def test_the_ceiling(passes: Run) -> None:
    bytes_of = passes.ask(
        f"SELECT arm.name AS arm, checkpoint.bytes_read_per_token + checkpoint.kv_bytes_per_token"
        f" * avg(generation.prompt_tokens + generation.completion_tokens / 2.0) AS bytes"
        f" FROM generation JOIN trial ON trial.id = generation.trial_id JOIN arm ON arm.id = trial.arm_id"
        f" JOIN checkpoint ON checkpoint.id = arm.checkpoint_id WHERE {COUNTS} GROUP BY arm.name"
    )
    bandwidth = passes.ask("SELECT bandwidth_bytes_per_s AS value FROM run")[0]["value"]
    assert bandwidth is not None
    assert len(passes.findings.ceilings) == len(bytes_of)
    for row in bytes_of:
        one = next(each for each in passes.findings.ceilings if each.arm == row["arm"])
        assert one.bytes_per_pass.value == pytest.approx(row["bytes"])
        assert one.ceiling_passes_per_s.value == pytest.approx(bandwidth / row["bytes"])
        assert one.ceiling_tps.value == pytest.approx(bandwidth / row["bytes"])
        assert one.measured_passes_per_s is not None
        assert one.share.value == pytest.approx(one.measured_passes_per_s * row["bytes"] / bandwidth)


def test_which_answers_are_the_same(run: Run) -> None:
    counted = run.ask(
        "SELECT arm.name AS arm, generation.prompt_id AS prompt, generation.turn AS turn,"
        " count(DISTINCT generation.token_ids) AS answers, min(generation.token_ids) AS ids"
        " FROM generation JOIN trial ON trial.id = generation.trial_id JOIN arm ON arm.id = trial.arm_id"
        " WHERE trial.kind IN ('measured', 'bracket') AND trial.status = 'done'"
        " GROUP BY arm.name, generation.prompt_id, generation.turn"
    )
    by_key = {(row["arm"], row["prompt"], row["turn"]): row for row in counted}
    assert run.findings.losslessness is not None
    control = run.findings.losslessness.control
    for arm in run.findings.losslessness.arms:
        if arm.against != control:
            continue
        same = [
            row["ids"] == by_key[control, row["prompt"], row["turn"]]["ids"] for row in counted if row["arm"] == arm.arm
        ]
        assert (arm.identical, arm.differs) == (sum(same), len(same) - sum(same))
        assert all(row["answers"] == 1 for row in counted)


def test_where_two_answers_part(run: Run) -> None:
    """4 against 8 bits: the first place whose tokens differ, by the rows of both answers."""
    tokens = run.ask(
        "SELECT DISTINCT arm.name AS arm, generation.prompt_id AS prompt, token.key AS place, token.value AS token"
        " FROM generation JOIN trial ON trial.id = generation.trial_id JOIN arm ON arm.id = trial.arm_id"
        " JOIN json_each(generation.token_ids) AS token WHERE trial.kind = 'measured'"
    )
    written = {(row["arm"], row["prompt"], row["place"]): row["token"] for row in tokens}
    assert run.findings.losslessness is not None
    control = run.findings.losslessness.control
    parted = [one for arm in run.findings.losslessness.arms for one in arm.outcomes if one.outcome == "differs"]
    assert parted
    for one in parted:
        places = sorted(place for arm, prompt, place in written if (arm, prompt) == (control, one.prompt_id))
        first = next(
            p for p in places if written[control, one.prompt_id, p] != written.get((one.arm, one.prompt_id, p))
        )
        assert one.divergence is not None
        assert one.divergence.token_index == first
        assert one.divergence.control_token == written[control, one.prompt_id, first]
        assert one.divergence.arm_token == written[one.arm, one.prompt_id, first]


def test_speed_over_the_rounds(run: Run) -> None:
    """Each arm against its own median: the middle of a line is 1."""
    assert run.findings.speed_by_round
    for line in run.findings.speed_by_round:
        known = [value for value in line.values if value is not None]
        assert math.exp(median(math.log(value) for value in known)) == pytest.approx(1.0)
        assert len(line.values) == run.plan.design.rounds
