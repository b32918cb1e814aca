"""Probes after the last round of a real run: tiny models in real workers, a real database."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import read_only, transaction
from orchestrator.judging import judge_run
from orchestrator.meaning import findings
from orchestrator.plan import Arm, Plan
from orchestrator.planning.weights import find_weights
from orchestrator.running import probes
from orchestrator.running.crew import Crew, Member
from orchestrator.running.execution import run_recorded
from orchestrator.running.probes import Prober, probe_run, store_bandwidth
from orchestrator.running.questions import ArmWidth
from orchestrator.running.recorder import Recorder, create_run
from orchestrator.stored_run import StoredRun
from tests.orchestrator.plans import OPEN_GATE, plan, prompt
from tests.orchestrator.plans import arm as simulated_arm
from tests.orchestrator.running.records import answer
from tests.orchestrator.running.trials import Witness
from tests.workers import tiny
from workers.errors import FaultKind, WorkerFault
from workers.machine.host import read_host
from workers.protocol import Probe, ProbeAnswer, Regenerated, Unsupported

MEASURED: tuple[float, str] = (5e9, "measured: by a test")


@pytest.fixture(autouse=True)
def bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds of copying are for a test of their own."""
    monkeypatch.setattr(probes, "measured_bytes_per_s", lambda: MEASURED)


def arm(name: str, checkpoint: dict[str, Any], draft: dict[str, Any] | None = None, **settings: Any) -> Arm:
    engine, kind = ("mlx_lm_draft", "MlxLmDraft") if draft else ("mlx_lm", "MlxLm")
    return Arm(
        name=name,
        checkpoint=checkpoint,
        engine={"name": engine, "_target_": f"workers.engines.{engine}.{kind}"} | settings,
        sampling={"name": "greedy", "temperature": 0.0},
        draft=draft,
    )


def planned(tmp_path: Path, **design: Any) -> Plan:
    """A control, the same with a draft, and other weights: three answers of which one differs."""
    target = tiny.build(tmp_path / "models" / "target")
    other = tiny.build_noisy(tmp_path / "models" / "other", noise=0.1)
    arms = (arm("control", target), arm("draft", target, other, block_size=3), arm("other", other))
    small = {"rounds": 1, "aa": False, "bracket": False, "warmups": 0, "probe": True, "probe_budget_s": 60.0}
    prompts = (prompt(turns=2),)
    return replace(plan(*arms, prompts=prompts, **(small | design)), gate=OPEN_GATE)


def recorder_of(database: Database, made: Plan, tmp_path: Path) -> Recorder:
    return create_run(database, made, host=read_host(), weights=find_weights(made), log_root=tmp_path)


AfterRounds = Callable[[Plan, Recorder, Crew], None]


def run(database: Database, made: Plan, tmp_path: Path, probe: AfterRounds = probe_run) -> tuple[Recorder, Witness]:
    recorder, witness = recorder_of(database, made, tmp_path), Witness()
    run_recorded(recorder, observer=witness, after_rounds=probe)
    return recorder, witness


def divergences(database: Database) -> dict[tuple[str, int], models.Divergence]:
    rows = select(models.Arm.name, models.Divergence).join(models.Arm, models.Divergence.arm_id == models.Arm.id)
    with read_only(database) as session:
        return {(name, row.turn): row for name, row in session.execute(rows)}


def passes(database: Database) -> set[tuple[str, str, int]]:
    rows = select(models.Arm.name, models.PassTime).join(models.Arm, models.PassTime.arm_id == models.Arm.id)
    with read_only(database) as session:
        return {(name, row.role, row.width) for name, row in session.execute(rows)}


@pytest.mark.nightly
def test_a_run_reports_what_differs_and_what_a_pass_takes(database: Database, tmp_path: Path) -> None:
    def twice(made: Plan, recorder: Recorder, crew: Crew) -> None:
        """As a run that was ended within its probes and is resumed."""
        probe_run(made, recorder, crew)
        probe_run(made, recorder, crew)

    recorder, witness = run(database, planned(tmp_path), tmp_path, twice)
    assert not [note for note in witness.notes if "prob" in note and not note.startswith("the rounds are over")]
    found = divergences(database)
    assert set(found) == {("other", 0)}  # the draft writes what the control writes; a second turn is another prompt
    row = found["other", 0]
    assert row.verdict == "real"
    assert row.gap is not None
    assert row.gap > 2 * (row.rounding or 0.0)
    assert row.top is not None
    assert row.top[0][0] == row.control_token != row.arm_token
    assert len(row.top) == 5
    assert row.control_text is not None
    assert passes(database) == {("control", "target", 1), ("control", "target", 3), ("draft", "draft", 1)}
    with read_only(database) as session:
        stored = session.get_one(models.Run, recorder.run_id)
        assert (stored.bandwidth_bytes_per_s, stored.bandwidth_source) == MEASURED
        checkpoints = session.scalars(select(models.Checkpoint)).all()
        assert all(each.bytes_read_per_token and each.kv_bytes_per_token for each in checkpoints)
        assert all((each.bytes_read_per_token or 0) <= (each.weights_bytes or 0) for each in checkpoints)


def served(name: str, checkpoint: dict[str, Any]) -> Arm:
    engine = {"name": "mlx_lm_server", "_target_": "workers.engines.mlx_lm_server.MlxLmServer"}
    sampling = {"name": "greedy", "temperature": 0.0}
    return Arm(name=name, checkpoint=checkpoint, engine=engine, sampling=sampling, draft=None)


@pytest.mark.nightly
@pytest.mark.parametrize("control_is_a_server", [False, True])
def test_a_servers_answers_are_repeated_and_judged(
    database: Database, tmp_path: Path, control_is_a_server: bool
) -> None:
    made = planned(tmp_path)
    target, other = made.arms[0].checkpoint, tiny.build_noisy(tmp_path / "models" / "near", noise=0.03)
    control = served("control", target) if control_is_a_server else made.arms[0]
    made = replace(made, arms=(control, served("same", target), served("other", other)), prompts=(prompt(),))
    recorder, witness = run(database, made, tmp_path)
    assert not [note for note in witness.notes if "bytes only" in note]
    found = divergences(database)
    assert set(found) == {("other", 0)}  # with the same weights a server writes what is written in process
    row = found["other", 0]
    assert row.control_token != row.arm_token
    assert row.gap is not None
    assert row.top is not None
    assert row.top[0][0] == row.control_token
    # Two servers of other weights say nothing about how far rounding goes.
    assert row.verdict == ("unknown" if control_is_a_server else "real")
    assert (row.rounding is None) == control_is_a_server
    run_id = recorder.run_id
    stored = StoredRun.load(database, run_id)
    losslessness = findings(stored, judge_run(stored).result).losslessness
    assert losslessness is not None
    (outcome,) = next(each for each in losslessness.arms if each.arm == "other").outcomes
    assert (outcome.compared_by, outcome.outcome) == ("text", "differs")
    assert outcome.divergence is not None
    assert (outcome.divergence.token_index, outcome.divergence.gap) == (row.token_index, row.gap)
    assert outcome.divergence.verdict == row.verdict


@dataclass
class Gone:
    """A crew whose workers cannot be loaded again."""

    notes: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def member(self, arm: Arm, *, on_load: Callable[[Member], None]) -> Member:
        self.asked.append(arm.name)
        raise WorkerFault(FaultKind.load_failed, f"arm {arm.name}: no memory")

    def discard(self, arm: Arm) -> None:
        self.discarded.append(arm.name)


def test_workers_that_are_gone_cost_notes_only(database: Database, tmp_path: Path) -> None:
    made, crew = planned(tmp_path), Gone()
    recorder = recorder_of(database, made, tmp_path)
    answers = [answer("control", 1, 2), answer("draft", 1, 2), answer("other", 1, 9)]
    widths = [
        ArmWidth(arm="control", verify_width=None, drafts=False),
        ArmWidth(arm="draft", verify_width=3, drafts=True),
    ]
    Prober(plan=made, recorder=recorder, crew=crew, answers=answers, widths=widths, budget_s=60.0).run()
    row = divergences(database)["other", 0]
    assert (row.verdict, row.gap, row.reason) == ("unknown", None, "the probe failed: load_failed")
    assert not passes(database)
    assert crew.asked == ["control", "draft", "draft", "control"]  # the passes of either, the draft's, the divergence
    assert set(crew.discarded) == {"control", "draft"}
    assert [note for note in crew.notes if "not timed" in note] == [
        "passes of target are not timed: the probe failed: load_failed",
        "passes of draft other are not timed: the probe failed: load_failed",
    ]


@dataclass
class AnsweringCrew:
    """A crew whose workers answer every probe with what is given."""

    given: ProbeAnswer
    notes: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def member(self, arm: Arm, *, on_load: Callable[[Member], None]) -> Any:
        return self

    def probe(self, request: Probe) -> ProbeAnswer:
        self.asked.append(request.request_id)
        return self.given

    def discard(self, arm: Arm) -> None:
        pytest.fail("a worker that answers is discarded")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Regenerated(request_id="r", text="something else", token_ids=[1], logprobs=[-1.0]), "gave another answer"),
        (Unsupported(request_id="r", reason="this server tells text"), "this server tells text"),
    ],
)
def test_a_server_that_does_not_report_its_tokens_is_asked_once_and_noted(
    database: Database, tmp_path: Path, given: ProbeAnswer, why: str
) -> None:
    prompts = (prompt(0), prompt(1))
    made, crew = replace(planned(tmp_path), prompts=prompts), AnsweringCrew(given)
    answers = [answer("control", 1, 2, prompt_id=each.id) for each in prompts]
    answers += [answer("other", text="of a server", stamps_of="chunk", prompt_id=each.id) for each in prompts]
    widths = [ArmWidth(arm=name, verify_width=None, drafts=False) for name in ("control", "other")]
    recorder = recorder_of(database, made, tmp_path)
    Prober(plan=made, recorder=recorder, crew=crew, answers=answers, widths=widths, budget_s=60.0).run()
    assert crew.asked == [f"regenerate/other/{prompts[0].id}/0"]
    (note,) = crew.notes
    assert note.startswith("other: its divergences from the control are known by their bytes only")
    assert note.endswith(why)
    assert not divergences(database)


def test_nothing_is_asked_when_the_time_is_over(database: Database, tmp_path: Path) -> None:
    made, crew = planned(tmp_path), Gone()
    recorder = recorder_of(database, made, tmp_path)
    answers = [answer("control", 1, 2), answer("other", 1, 9)]
    widths = [ArmWidth(arm="control", verify_width=3, drafts=True)]
    Prober(plan=made, recorder=recorder, crew=crew, answers=answers, widths=widths, budget_s=0.0).run()
    assert not crew.asked
    assert divergences(database)["other", 0].reason == "the probes' 0 s were used up before this question"
    assert crew.notes == ["passes of target are not timed: the probes' 0 s were over"]


@pytest.mark.parametrize("probe", [True, False])
def test_what_measures_nothing_or_does_not_want_it_is_not_probed(
    database: Database, tmp_path: Path, probe: bool
) -> None:
    """Simulated runs never; others as `design.probe` says."""
    made = plan(simulated_arm("a"), simulated_arm("b"), rounds=1, warmups=0, bracket=False, probe=probe)
    recorder, _ = run(database, made, tmp_path)
    assert not divergences(database)
    with read_only(database) as session:
        assert session.get_one(models.Run, recorder.run_id).bandwidth_bytes_per_s is None


def test_a_published_bandwidth_is_not_measured(database: Database, tmp_path: Path) -> None:
    made = plan(simulated_arm("a"))
    host = replace(read_host(), chip="Apple M4 Pro", gpu_cores=20)
    recorder = create_run(database, made, host=host, weights=find_weights(made), log_root=tmp_path)
    store_bandwidth(recorder, lambda text: None, measure=lambda: pytest.fail("measured"))
    with read_only(database) as session:
        stored = session.get_one(models.Run, recorder.run_id)
        assert (stored.bandwidth_bytes_per_s, stored.bandwidth_source) == (273e9, "published by Apple")


def test_a_bandwidth_that_cannot_be_measured_has_its_reason(database: Database, tmp_path: Path) -> None:
    recorder, notes = recorder_of(database, plan(simulated_arm("a")), tmp_path), list[str]()
    store_bandwidth(recorder, notes.append, measure=lambda: (None, "not measured within 30 s"))
    with read_only(database) as session:
        stored = session.get_one(models.Run, recorder.run_id)
        assert (stored.bandwidth_bytes_per_s, stored.bandwidth_source) == (None, "not measured within 30 s")
    assert notes == ["the memory's bandwidth is unknown: not measured within 30 s"]


def test_a_checkpoint_from_before_gets_its_bytes(database: Database, tmp_path: Path) -> None:
    made = planned(tmp_path)
    recorder_of(database, made, tmp_path)
    with transaction(database) as session:
        for row in session.scalars(select(models.Checkpoint)):
            row.bytes_read_per_token = None
    recorder_of(database, made, tmp_path)
    with read_only(database) as session:
        stored = [row.bytes_read_per_token for row in session.scalars(select(models.Checkpoint))]
    assert stored
    assert all(stored)
