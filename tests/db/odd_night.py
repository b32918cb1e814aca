"""One more run, earlier than those of `filling`, in which what can go wrong went wrong: for the stored queries."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db import models
from db.session import transaction
from tests.db.filling import START

AT = START - dt.timedelta(days=20)
SCRIPT = "<script>alert('model text')</script><img src=//elsewhere.example/x>"


@dataclass(frozen=True, slots=True, kw_only=True)
class OddNight:
    """The facts about it that a test needs."""

    run: str


def fill_odd_night(engine: Engine) -> OddNight:
    """Write the run into a database that `filling.fill` filled.

    Arms: the control, faster than it is later under newer versions; a draft that never engages; two widths of another.
    """
    with transaction(engine) as session:
        run = _run(session)
        arms = {
            "plain-8bit": _arm(session, run, "plain-8bit", width=None),
            "silent-8bit": _arm(session, run, "silent-8bit", width=4),
            "draft-8bit 2": _arm(session, run, "draft-8bit 2", width=2),
            "draft-8bit 8": _arm(session, run, "draft-8bit 8", width=8),
        }
        environment = _environment(session)
        rows = (
            _trial(0, "plain-8bit", gate=("waited", 12.5), generations=[_generation(tps=60.0), _second_turn()]),
            _trial(1, "silent-8bit", gate=("hot_start", 4.0), generations=[_generation(tps=55.0, engaged=False)]),
            _trial(2, "draft-8bit 2", thermal=2, status="excluded", reason="thermal: level 2 while it ran, above 1"),
            _trial(3, "draft-8bit 8", status="invalid", error=("crashed", "signal 9 (SIGKILL)")),
        )
        for values in rows:
            arm = values.pop("arm")
            session.add(models.Trial(run_id=run, arm_id=arms[arm], environment_id=environment, **values))
        _audit(session, run)
    return OddNight(run=run)


def _run(session: Session) -> str:
    row = models.Run(
        id=models.new_id(),
        experiment_id=session.scalars(select(models.Experiment.id)).one(),
        host_id=session.scalars(select(models.Host.id)).one(),
        status="done",
        created_at=AT,
        finished_at=AT + dt.timedelta(hours=1),
        plan='{"command": ["interlace", "run"]}',
        plan_sha256="odd",
        workload_sha256="w" * 64,
        seed=0,
        rounds=1,
        metric="decode_tps",
        interleave_by="prompt",
        order_distribution="uniform",
        simulated=False,
        note="two arms failed",
    )
    session.add(row)
    session.flush()
    return row.id


def _environment(session: Session) -> str:
    row = models.Environment(
        id=models.new_id(),
        sha256="older",
        python="3.12.4",
        interlace_version="0.1.0",
        mlx_version="0.31.0",
        mlx_lm_version="0.30.1",
        os="macOS 15.5",
        os_build="24F74",
        packages={},
    )
    session.add(row)
    return row.id


def _arm(session: Session, run: str, name: str, *, width: int | None) -> str:
    checkpoint = session.scalars(select(models.Checkpoint.id).where(models.Checkpoint.bits == 8)).one()
    row = models.Arm(
        id=models.new_id(),
        run_id=run,
        name=name,
        is_control=name == "plain-8bit",
        config_sha256=f"config of {name}",
        engine="mlx_lm" if width is None else "mlx_lm_draft",
        engine_version="0.32.2",
        checkpoint_id=checkpoint,
        draft=None if width is None else "smollm2-4bit",
        block_size=width,
        engine_setting={},
        config={},
        state="active",
    )
    session.add(row)
    return row.id


def _trial(
    ordinal: int,
    arm: str,
    *,
    generations: list[models.Generation] | None = None,
    gate: tuple[str, float] | None = None,
    thermal: int = 0,
    status: str = "done",
    reason: str | None = None,
    error: tuple[str, str] = ("", ""),
) -> dict[str, Any]:
    waited = {} if gate is None else {"thermal_level": gate[1]}
    return {
        "arm": arm,
        "kind": "measured",
        "is_aa": False,
        "sequence": ordinal,
        "ordinal": ordinal,
        "started_at": AT + dt.timedelta(minutes=ordinal),
        "status": status,
        "error_kind": error[0] or None,
        "error_message": error[1] or None,
        "excluded_reason": reason,
        "thermal_max": thermal,
        "gate_state": "open" if gate is None else gate[0],
        "gate_detail": {"waited_for": waited, "not_held": None, "unreadable": {}},
        "generations": generations or [],
    }


def _generation(*, tps: float, engaged: bool | None = None, **changes: Any) -> models.Generation:
    values: dict[str, Any] = {
        "position": 0,
        "prompt_id": "set/prose",
        "workload": "quick",
        "prompt_class": "prose",
        "turn": 0,
        "started_at": AT,
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "completion_tokens": 100,
        "ttft_s": 0.5,
        "decode_tps": tps,
        "end_to_end_tps": tps,
        "requested": engaged is not None,
        "engaged": engaged,
        "text": SCRIPT,
        "flags": [],
    }
    return models.Generation(**(values | changes))


def _second_turn() -> models.Generation:
    return _generation(tps=60.0, position=1, turn=1, prompt_tokens=200, cached_tokens=150, ttft_s=0.25)


def _audit(session: Session, run: str) -> None:
    comparisons = [
        models.Comparison(
            position=position,
            treatment=treatment,
            control="plain-8bit",
            metric="decode_tps",
            verdict=verdict,
            direction="faster" if verdict == "supported" else None,
            ratio=ratio,
            rounds=8,
            reasons=[],
        )
        for position, (treatment, verdict, ratio) in enumerate(
            (("draft-8bit 2", "supported", 1.3), ("draft-8bit 8", "could_be_drift", 1.1))
        )
    ]
    session.add(
        models.Audit(
            run_id=run,
            created_at=AT,
            method_version="1",
            metric="decode_tps",
            alpha=0.05,
            margin=0.02,
            seed=0,
            summary="",
            comparisons=comparisons,
        )
    )
