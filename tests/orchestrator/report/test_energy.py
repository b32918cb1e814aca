"""Energy that a machine's counter gave is shown; where there is none, nothing is said."""

from pathlib import Path

import pytest
from sqlalchemy import select

from db import models
from db.session import transaction
from orchestrator.report.loading import load_material
from orchestrator.report.sections.arm_numbers import arms_section
from orchestrator.stored_run import StoredRun
from tests.orchestrator.plans import arm, plan, prompt

from .runs import store


def test_energy_per_token_is_shown_by_arm_where_it_was_read(tmp_path: Path) -> None:
    planned = plan(arm("a"), arm("b"), prompts=(prompt(0), prompt(1)), rounds=6)
    database, run_id = store(tmp_path, planned)
    assert load_material(StoredRun.load(database, run_id)).energy == ()
    assert arms_section(load_material(StoredRun.load(database, run_id))).lines == ()
    with transaction(database) as session:
        names = {row.id: row.name for row in session.scalars(select(models.Arm))}
        trials = list(session.scalars(select(models.Trial).where(models.Trial.kind == "measured")))
        for trial in trials:
            answered = select(models.Generation).where(models.Generation.trial_id == trial.id)
            tokens = sum(one.completion_tokens or 0 for one in session.scalars(answered))
            joules = {"a": 0.5, "b": 0.25}[names[trial.arm_id]] * tokens
            for phase, value in (("before", 9e9), ("after", joules * 1000)):
                session.add(
                    models.Telemetry(
                        id=models.new_id(),
                        trial_id=trial.id,
                        phase=phase,
                        field="energy_mj",
                        value=value,
                        source="zeus",
                    )
                )
    found = load_material(StoredRun.load(database, run_id))
    assert [(one.arm, one.joules_per_token) for one in found.energy] == [
        ("a", pytest.approx(0.5)),
        ("b", pytest.approx(0.25)),
    ]
    (line,) = arms_section(found).lines
    assert "counter (zeus), medians: a 0.500 J (" in line
    assert "b 0.250 J (" in line
    database.dispose()
