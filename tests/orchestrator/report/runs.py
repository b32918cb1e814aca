"""Stored runs to report on: simulated, with everything in them that could harm a page."""

from pathlib import Path

from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import open_database, transaction
from orchestrator.plan import Arm, Plan
from orchestrator.planning.weights import find_weights
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from tests.orchestrator.plans import arm, plan, prompt
from workers.machine.host import read_host

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=https://example.org/x.png onerror=alert(2)>'
ANSI, BIDI, NUL = "\x1b[31mred\x1b[0m", "abc\u202egnp.exe", "a\x00b"
HOSTILE = f"{SCRIPT} {IMAGE} {ANSI} {BIDI} {NUL} }}}}{{{{7*7}}}} </style> ]]> --> | `x` [a](javascript:alert(3))"
HOSTILE_ARM = f"draft {SCRIPT} {ANSI} {BIDI} width=8 a name that goes on for rather longer than any axis has room for"


def store(tmp_path: Path, planned: Plan) -> tuple[Database, str]:
    """Run a plan on the fake clock and store it."""
    database = open_database(f"sqlite:///{tmp_path / 'report.db'}")
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    run_recorded(recorder, observer=Observer())
    return database, recorder.run_id


def hostile_arms() -> tuple[Arm, ...]:
    """Plain, two widths, and one that forgets the conversation; all on a machine that loses 30 %."""
    drift = {"drift": "linear", "drift_size": -0.3}
    return (
        arm("plain", **drift),
        arm("width 4", acceptance=0.6, block_size=4, effect=1.3, **drift),
        arm(HOSTILE_ARM, acceptance=0.6, block_size=8, effect=1.3, **drift),
        arm("forgets", prefix_cache=False, **drift),
    )


def hostile_plan() -> Plan:
    prompts = (
        prompt(0, prompt_class="code", turns=2, workload="two_turns"),
        prompt(1, prompt_class=f"prose {SCRIPT}", turns=2, workload="two_turns"),
    )
    return plan(*hostile_arms(), prompts=prompts, rounds=8, interleave_by="workload")


def poison(database: Database, run_id: str) -> None:
    """Hostile words wherever a run stores what others wrote; a trial excluded, one invalid, some hot, some waiting."""
    with transaction(database) as session:
        of_run = select(models.Trial).where(models.Trial.run_id == run_id, models.Trial.kind == "measured")
        trials = list(session.scalars(of_run.order_by(models.Trial.ordinal)))
        trials[3].status, trials[3].excluded_reason = "excluded", f"hot_start {SCRIPT}"
        trials[6].status, trials[6].error_kind, trials[6].error_message = "invalid", "crash", HOSTILE
        for number, trial in enumerate(trials):
            trial.thermal_max, trial.gate_wait_s = number % 3, float(number % 4)
        arms = {row.id: row for row in session.scalars(select(models.Arm).where(models.Arm.run_id == run_id))}
        for row in session.scalars(select(models.Evidence)):
            row.text = f"{row.text} {HOSTILE}"
        chosen = {trial.id: arms[trial.arm_id].is_control for trial in trials}
        for generation in session.scalars(select(models.Generation)):
            if not chosen.get(generation.trial_id, True):
                generation.text, generation.token_ids = HOSTILE, [1, 2, 3]
                generation.token_ids_sha256 = generation.text_sha256 = "1" * 64
        run = session.get_one(models.Run, run_id)
        run.note = f"note {HOSTILE}"
