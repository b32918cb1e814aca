"""Runs whose numbers are known, for what is made of them in words."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy import Engine

from db.session import open_database
from orchestrator.audit import AuditResult
from orchestrator.findings.values import Findings
from orchestrator.judging import judge_run
from orchestrator.plan import Plan, Prompt
from orchestrator.planning.weights import find_weights
from orchestrator.report.building import build_audit
from orchestrator.report.loading import load_material
from orchestrator.report.material import Material
from orchestrator.report.render_terminal import print_document
from orchestrator.running.events import Observer
from orchestrator.running.execution import run_recorded
from orchestrator.running.recorder import create_run
from orchestrator.stored_run import StoredRun
from tests.orchestrator.plans import OPEN_GATE, arm, plan, prompt
from workers.machine.host import read_host

DOCUMENT = " ".join(f"word{number}" for number in range(600))


class Told:
    """A run that was made, judged and understood."""

    def __init__(self, database: Engine, planned: Plan, run_id: str) -> None:
        self.database, self.plan, self.run_id = database, planned, run_id
        stored = StoredRun.load(database, run_id)
        self.material: Material = load_material(stored, judge_run(stored))
        self.result: AuditResult = self.material.result
        self.findings: Findings = self.material.findings

    def terminal(self, *, width: int = 80, encoding: str = "utf-8") -> str:
        target = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        out = Console(file=target, width=width, highlight=False)
        print_document(build_audit(self.material), out)
        target.flush()
        written = target.buffer
        assert isinstance(written, io.BytesIO)
        return written.getvalue().decode(encoding)


def run(planned: Plan, folder: Path) -> Told:
    planned = replace(planned, gate=OPEN_GATE)
    database = open_database(f"sqlite:///{folder / 'meaning.db'}")
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=folder)
    run_recorded(recorder, observer=Observer())
    return Told(database, planned, recorder.run_id)


def article_plan(**design: Any) -> Plan:
    """Short prompts and a long conversation; the faster decoder has a cache of its own that no second turn finds."""
    conversation = Prompt(
        id="two_turns/0",
        workload="two_turns",
        prompt_class="long",
        turns=(({"role": "user", "content": DOCUMENT},), ({"role": "user", "content": "and what else"},)),
        max_tokens=16,
    )
    hot = {"drift": "linear", "drift_size": -0.34, "acceptance": 0.6, "prefill_tps": 500.0}
    arms = (arm("mtp", **hot), arm("dflash", effect=1.37, prefix_cache=False, **hot))
    prompts = (prompt(0), prompt(1, prompt_class="maths"), conversation)
    return plan(*arms, prompts=prompts, rounds=18, **design)
