"""Store a judgement beside the run that it judges."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from db import models
from db.engine import Database
from db.session import transaction
from orchestrator.audit import AuditResult
from orchestrator.jsonable import bounded
from orchestrator.plan import Plan


def save_audit(
    database: Database,
    plan: Plan,
    run_id: str,
    result: AuditResult,
    *,
    compositions: Mapping[str, Any] | None = None,
) -> None:
    """Store a judgement with the version of the method that made it.

    Args:
        compositions: of two factors, as plain values; None: the arms are no full table.
    """
    design = plan.design
    comparisons = [
        models.Comparison(
            position=position,
            **{
                key: value
                for key, value in asdict(comparison).items()
                if key in models.Comparison.__table__.columns and key != "reasons"
            },
            reasons=[asdict(reason) for reason in comparison.reasons],
        )
        for position, comparison in enumerate(result.comparisons)
    ]
    with transaction(database) as session:
        session.add(
            models.Audit(
                run_id=run_id,
                created_at=dt.datetime.now(dt.UTC),
                method_version=result.method_version,
                metric=design.metric,
                alpha=design.alpha,
                margin=design.margin,
                seed=design.seed,
                drift=result.drift,
                drift_reason=result.drift_reason,
                summary=result.summary,
                inference="anytime" if design.stop == "early" else "fixed",
                best=[asdict(each) for each in result.best],
                carry_over=None if result.carry_over is None else bounded(asdict(result.carry_over)),
                compositions=None if compositions is None else bounded(compositions),
                comparisons=comparisons,
            )
        )
