"""The comparisons that a newer method decides otherwise than the method that judged the run before, and why."""

from collections.abc import Iterator, Sequence

from sqlalchemy import select
from sqlalchemy.orm import selectinload

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.statistics.findings import AuditResult, Comparison
from orchestrator.vocabulary import VERDICTS


def revisions(database: Database, run_id: str, result: AuditResult) -> tuple[str, ...]:
    """A sentence per comparison over all that the last judgement by another method decided otherwise; one more counts
    those in parts of the run. Empty when there is no such judgement, or it agrees."""
    with read_only(database) as session:
        earlier = session.scalars(
            select(models.Audit)
            .where(
                models.Audit.run_id == run_id,
                models.Audit.metric == result.metric,
                models.Audit.method_version != result.method_version,
            )
            .order_by(models.Audit.created_at.desc(), models.Audit.id.desc())
            .options(selectinload(models.Audit.comparisons))
            .limit(1)
        ).first()
        return () if earlier is None else tuple(_lines(earlier, result))


def _lines(earlier: models.Audit, result: AuditResult) -> Iterator[str]:
    stored = {(one.treatment, one.workload, one.prompt_class, one.turn): one for one in earlier.comparisons}
    changed: list[tuple[models.Comparison, Comparison]] = []
    for one in result.comparisons:
        before = stored.get((one.treatment, one.workload, one.prompt_class, one.turn))
        if before is not None and (before.verdict, before.direction) != (one.verdict, one.direction):
            changed.append((before, one))
    for before, now in changed:
        if now.over_all:
            yield (
                f"{now.treatment} against {now.control}: method {earlier.method_version} gave {_words(before)} on"
                f" {earlier.created_at:%Y-%m-%d}; method {result.method_version} gives {_words(now)}, because"
                f" {_reasons(now)}"
            )
    parts = sum(not now.over_all for _, now in changed)
    if parts:
        noun = "comparison" if parts == 1 else "comparisons"
        yield f"{parts} {noun} in parts of the run, see the table"


def _words(one: models.Comparison | Comparison) -> str:
    direction = f" {one.direction}" if one.direction else ""
    ratio = "" if one.ratio is None else f" ({one.ratio:.3f})"
    return f"{VERDICTS[one.verdict].words}{direction}{ratio}"


def _reasons(one: Comparison) -> str:
    texts: Sequence[str] = [reason.text for reason in one.reasons[:2]]
    return "; ".join(texts)
