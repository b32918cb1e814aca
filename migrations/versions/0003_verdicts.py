"""The rest of a judgement: family-wise p-values, results with excluded trials, the best arms, carry-over, compositions.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns only, so no table is recreated."""
    for column in (
        sa.Column("inference", sa.String()),
        sa.Column("best", sa.JSON()),
        sa.Column("carry_over", sa.JSON()),
        sa.Column("compositions", sa.JSON()),
    ):
        op.add_column("audit", column)
    for column in (sa.Column("family_p", sa.Double()), sa.Column("included", sa.JSON())):
        op.add_column("comparison", column)
    op.execute("DROP VIEW verdict_flat")
    op.execute(VERDICT_FLAT)


# As in 0001, with the new columns at its end.
VERDICT_FLAT = """
CREATE VIEW verdict_flat AS
SELECT
    run.id AS run_id,
    experiment.name AS experiment,
    host.name AS host,
    host.chip AS chip,
    audit.created_at AS created_at,
    comparison.treatment AS treatment,
    comparison.control AS control,
    comparison.prompt_class AS prompt_class,
    comparison.turn AS turn,
    comparison.metric AS metric,
    comparison.verdict AS verdict,
    comparison.direction AS direction,
    comparison.ratio AS ratio,
    comparison.ci_low AS ci_low,
    comparison.ci_high AS ci_high,
    comparison.p_value AS p_value,
    comparison.rounds AS rounds,
    comparison.wins AS wins,
    comparison.aa_ratio AS aa_ratio,
    comparison.aa_low AS aa_low,
    comparison.aa_high AS aa_high,
    comparison.engaged_share AS engaged_share,
    comparison.reasons AS reasons,
    audit.drift AS drift,
    audit.drift_reason AS drift_reason,
    audit.method_version AS method_version,
    audit.alpha AS alpha,
    audit.margin AS margin,
    audit.id AS audit_id,
    comparison.position AS position,
    run.created_at AS run_created_at,
    run.workload_sha256 AS workload_sha256,
    run.simulated AS simulated,
    comparison.family_p AS family_p,
    comparison.included AS included,
    audit.inference AS inference,
    audit.best AS best,
    audit.carry_over AS carry_over,
    audit.compositions AS compositions
FROM run
JOIN experiment ON experiment.id = run.experiment_id
JOIN host ON host.id = run.host_id
JOIN audit ON audit.id = (
    SELECT newest.id FROM audit AS newest
    WHERE newest.run_id = run.id
    ORDER BY newest.created_at DESC, newest.id DESC
    LIMIT 1
)
JOIN comparison ON comparison.audit_id = audit.id
"""
