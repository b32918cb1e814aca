"""The warnings that an audit prints before its verdicts."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, select, update

from db.models import Arm, Audit, Generation, Run, Trial
from db.session import open_database, transaction
from orchestrator.plan import dump
from orchestrator.report.building import build_audit, build_report
from orchestrator.report.loading import load_material
from orchestrator.report.render_html import render_page
from orchestrator.report.warnings import warnings
from orchestrator.stored_run import StoredRun
from tests.db.filling import Filled, fill
from tests.orchestrator.plans import arm, plan


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Engine, Filled]:
    engine = open_database(str(tmp_path / "x.db"))
    filled = fill(engine)
    arms = ("plain-8bit", "plain-4bit", "draft-8bit")
    with transaction(engine) as session:
        session.execute(update(Run).values(plan=dump(plan(*map(arm, arms), rounds=8))))
    return engine, filled


def caveats(engine: Engine, run_id: str) -> tuple[str, ...]:
    """Return the run's warnings, except that it is simulated."""
    found = warnings(load_material(StoredRun.load(engine, run_id), record=False))
    return tuple(f"{word}: {text}" for word, text in found if word != "Simulated")


def test_a_whole_run_of_ours_has_none(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    assert caveats(engine, filled.last_run) == ()


def test_another_model_than_was_asked_for_is_reported_once_per_arm(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    with transaction(engine) as session:
        for generation in session.scalars(
            select(Generation).join(Trial).join(Arm).where(Arm.run_id == filled.last_run, Arm.name == "plain-8bit")
        ):
            generation.flags = ["other_model"]
    (line,) = caveats(engine, filled.last_run)
    assert line.startswith("Another model: plain-8bit: ")
    assert line.endswith(
        "the answer names another model than was asked for (set engine.model to the name that it states)."
    )


def test_order_end_and_lost_arms_are_reported(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    with transaction(engine) as session:
        session.execute(
            update(Run)
            .where(Run.id == filled.last_run)
            .values(randomised=False, origin="vllm-bench", status="interrupted", note="stopped at 07:00")
        )
        session.execute(
            update(Arm)
            .where(Arm.run_id == filled.last_run, Arm.name == "draft-8bit")
            .values(state="dropped", state_reason="preflight: no server")
        )
    assert caveats(engine, filled.last_run) == (
        "Not randomised: Results of vllm-bench: their order was not drawn at random, so no test can distinguish an"
        " effect from drift. Verdicts need a run of interlace itself.",
        "Unfinished: The run is interrupted (stopped at 07:00): 0 of 3 planned rounds complete. This report covers the"
        " trials stored so far.",
        "Dropped: draft-8bit (preflight: no server).",
    )


def test_what_another_tools_file_left_out_is_reported_again(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    note = (
        "no single requests in the file\nleft out: a: 188 of 200 requests (94 %) failed; the figures are of the others"
    )
    with transaction(engine) as session:
        own = update(Run).where(Run.id == filled.last_run)
        session.execute(own.values(randomised=False, origin="vllm-bench", note=note))
    assert caveats(engine, filled.last_run)[1:] == (f"L{note.splitlines()[1][1:]}",)


def test_a_server_that_states_no_cached_tokens_is_reported(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    of_arm = select(Trial.id).join(Arm, Trial.arm_id == Arm.id).where(Arm.run_id == filled.last_run)
    with transaction(engine) as session:
        name = session.scalars(select(Arm.name).where(Arm.run_id == filled.last_run).order_by(Arm.id)).first()
        mine = of_arm.where(Arm.name == name)
        session.execute(update(Generation).where(Generation.trial_id.in_(mine)).values(stamps_of="chunk"))
    (told,) = caveats(engine, filled.last_run)
    assert told.startswith(f"Caches unknown: {name} reports no cached tokens")
    with transaction(engine) as session:
        off = {"engine": {"prefix_cache": False, "attach": None}}
        session.execute(update(Arm).where(Arm.run_id == filled.last_run, Arm.name == name).values(config=off))
    assert caveats(engine, filled.last_run) == ()
    with transaction(engine) as session:
        session.execute(update(Arm).where(Arm.run_id == filled.last_run, Arm.name == name).values(config={}))
        session.execute(update(Generation).where(Generation.trial_id.in_(mine)).values(cached_tokens=0))
    assert caveats(engine, filled.last_run) == ()


def test_what_an_earlier_method_decided_otherwise_stands_on_the_page_as_in_the_audit(
    stored: tuple[Engine, Filled],
) -> None:
    engine, filled = stored
    with transaction(engine) as session:
        session.execute(
            update(Audit).where(Audit.run_id == filled.last_run).values(method_version="1", metric="end_to_end_tps")
        )
    material = load_material(StoredRun.load(engine, filled.last_run), record=False)
    told = [text for word, text in warnings(material) if word == "Decided otherwise"]
    assert told[0].startswith("plain-4bit against plain-8bit: method 1 gave ")
    assert "gave supported faster (1.200) on" in told[0]
    for said in (build_audit(material), build_report(material, made_at=material.run.created_at)):
        assert ("Decided otherwise", told[0]) in said.warnings
    page = render_page(build_report(material, made_at=material.run.created_at))
    assert "<b>Decided otherwise.</b> plain-4bit against plain-8bit: method 1" in page
