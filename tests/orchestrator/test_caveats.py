"""What an audit says before its verdicts."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy import Engine, select, update

from db.models import Arm, Generation, Run, Trial
from db.session import open_database, transaction
from orchestrator.audit import audit
from orchestrator.caveats import caveats
from orchestrator.views.audit_markdown import markdown
from orchestrator.views.audit_view import print_audit
from tests.db.filling import Filled, fill
from tests.orchestrator.flat import FlatRun
from tests.orchestrator.plans import arm, plan


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Engine, Filled]:
    engine = open_database(str(tmp_path / "x.db"))
    return engine, fill(engine)


def test_a_whole_run_of_ours_has_none(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    assert caveats(engine, filled.last_run) == ()


def test_order_end_and_lost_arms_are_told(stored: tuple[Engine, Filled]) -> None:
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
        "not randomised: results of vllm-bench; no test can tell an effect from drift",
        "unfinished: the run is interrupted (stopped at 07:00); this is what is stored so far",
        "parked: draft-8bit (preflight: no server)",
    )


def test_what_another_tools_file_left_out_is_told_again(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    note = (
        "no single requests in the file\nleft out: a: 188 of 200 requests (94 %) failed; the figures are of the others"
    )
    with transaction(engine) as session:
        own = update(Run).where(Run.id == filled.last_run)
        session.execute(own.values(randomised=False, origin="vllm-bench", note=note))
    assert caveats(engine, filled.last_run)[1:] == (note.splitlines()[1],)


def test_a_server_that_states_no_cached_tokens_is_told(stored: tuple[Engine, Filled]) -> None:
    engine, filled = stored
    of_arm = select(Trial.id).join(Arm, Trial.arm_id == Arm.id).where(Arm.run_id == filled.last_run)
    with transaction(engine) as session:
        name = session.scalars(select(Arm.name).where(Arm.run_id == filled.last_run).order_by(Arm.id)).first()
        mine = of_arm.where(Arm.name == name)
        session.execute(update(Generation).where(Generation.trial_id.in_(mine)).values(stamps_of="chunk"))
    (told,) = caveats(engine, filled.last_run)
    assert told.startswith(f"caches unknown: {name} states no cached tokens")
    with transaction(engine) as session:
        off = {"engine": {"prefix_cache": False, "attach": None}}
        session.execute(update(Arm).where(Arm.run_id == filled.last_run, Arm.name == name).values(config=off))
    assert caveats(engine, filled.last_run) == ()
    with transaction(engine) as session:
        session.execute(update(Arm).where(Arm.run_id == filled.last_run, Arm.name == name).values(config={}))
        session.execute(update(Generation).where(Generation.trial_id.in_(mine)).values(cached_tokens=0))
    assert caveats(engine, filled.last_run) == ()


def test_they_stand_before_the_verdicts() -> None:
    frame = FlatRun(effects={"plain": 1.0, "draft": 1.2}, rounds=8).frame()
    result = audit(frame, control="plain", metric="end_to_end_tps")
    shown = plan(arm("plain"), arm("draft"))
    out = Console(file=io.StringIO(), width=80)
    print_audit(result, plan=shown, run_id="r", out=out, caveats=("parked: b (why)",))
    assert isinstance(out.file, io.StringIO)
    for text in (out.file.getvalue(), markdown(result, plan=shown, run_id="r", caveats=("parked: b (why)",))):
        assert 0 <= text.index("parked: b") < text.index("supported")
