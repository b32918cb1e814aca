"""The 95th percentile of the times between a generation's tokens, or why there is none.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BEFORE = "stored before it was recorded"


def upgrade() -> None:
    """Add the columns, and say of earlier generations that they have none; the view shows both."""
    op.add_column("generation", sa.Column("inter_token_p95_s", sa.Double()))
    op.add_column("generation", sa.Column("inter_token_reason", sa.String()))
    op.execute(sa.text("UPDATE generation SET inter_token_reason = :before").bindparams(before=BEFORE))
    op.execute("DROP VIEW trial_flat")
    op.execute(TRIAL_FLAT)


# As in 0005, with the new columns at its end.
TRIAL_FLAT = """
CREATE VIEW trial_flat AS
SELECT
    run.id AS run_id,
    experiment.name AS experiment,
    host.name AS host,
    host.chip AS chip,
    trial.started_at AS started_at,
    round."index" AS round,
    trial.position AS position,
    arm.name AS arm,
    arm.is_control AS is_control,
    trial.kind IN ('warmup', 'preflight') AS is_warmup,
    arm.engine AS engine,
    arm.engine_version AS engine_version,
    checkpoint.name AS checkpoint,
    checkpoint.bits AS bits,
    arm.draft AS draft,
    arm.block_size AS block_size,
    generation.workload AS workload,
    generation.prompt_class AS prompt_class,
    generation.turn AS turn,
    environment.mlx_version AS mlx_version,
    environment.mlx_lm_version AS mlx_lm_version,
    environment.os_build AS os_build,
    trial.thermal_before AS thermal_before,
    trial.thermal_max AS thermal_max,
    trial.thermal_after AS thermal_after,
    trial.power_source AS power_source,
    generation.requested AS requested,
    generation.engaged AS engaged,
    generation.useful AS useful,
    (
        SELECT group_concat(signs.text, '; ')
        FROM (SELECT text FROM evidence WHERE evidence.generation_id = generation.id ORDER BY evidence.id) AS signs
    ) AS evidence,
    generation.prompt_tokens AS prompt_tokens,
    generation.cached_tokens AS cached_tokens,
    generation.completion_tokens AS completion_tokens,
    generation.finish_reason AS finish_reason,
    generation.ttft_s AS ttft_s,
    generation.prefill_tps AS prefill_tps,
    generation.decode_tps AS decode_tps,
    generation.end_to_end_tps AS end_to_end_tps,
    generation.accept_length AS accept_length,
    generation.acceptance_rate AS acceptance_rate,
    generation.peak_memory_bytes AS peak_memory_bytes,
    trial.status AS status,
    trial.excluded_reason AS excluded_reason,
    trial.id AS trial_id,
    generation.id AS generation_id,
    trial.kind AS kind,
    trial.is_aa AS is_aa,
    trial.sequence AS sequence,
    round.attempt AS attempt,
    trial.seed AS seed,
    generation.position AS generation_position,
    generation.prompt_id AS prompt_id,
    generation.prompt_sha256 AS prompt_sha256,
    generation.started_at AS generation_started_at,
    generation.total_s AS total_s,
    generation.verify_steps AS verify_steps,
    generation.drafted AS drafted,
    generation.accepted AS accepted,
    generation.engine_prefill_tps AS engine_prefill_tps,
    generation.engine_decode_tps AS engine_decode_tps,
    generation.engine_gap AS engine_gap,
    generation.cpu_s AS cpu_s,
    generation.text_sha256 AS text_sha256,
    generation.token_ids_sha256 AS token_ids_sha256,
    generation.flags AS flags,
    trial.error_kind AS error_kind,
    trial.error_message AS error_message,
    trial.thermal_reason AS thermal_reason,
    trial.power_reason AS power_reason,
    trial.gate_wait_s AS gate_wait_s,
    trial.wall_s AS wall_s,
    trial.monotonic_s AS monotonic_s,
    arm.fingerprint AS fingerprint,
    arm.temperature AS temperature,
    arm.drafted_per_step AS drafted_per_step,
    environment.interlace_version AS interlace_version,
    environment.python AS python,
    environment.os AS os,
    checkpoint.digest AS checkpoint_digest,
    run.status AS run_status,
    run.created_at AS run_created_at,
    run.workload_sha256 AS workload_sha256,
    run.simulated AS simulated,
    trial.ordinal AS ordinal,
    trial.gate_state AS gate_state,
    trial.gate_detail AS gate_detail,
    trial.boot_id AS boot_id,
    run.origin AS origin,
    run.randomised AS randomised,
    generation.first_byte_s AS first_byte_s,
    generation.first_visible_s AS first_visible_s,
    generation.inter_token_p95_s AS inter_token_p95_s,
    generation.inter_token_reason AS inter_token_reason
FROM trial
JOIN run ON run.id = trial.run_id
JOIN experiment ON experiment.id = run.experiment_id
JOIN host ON host.id = run.host_id
JOIN arm ON arm.id = trial.arm_id
LEFT JOIN round ON round.id = trial.round_id
LEFT JOIN environment ON environment.id = trial.environment_id
LEFT JOIN checkpoint ON checkpoint.id = arm.checkpoint_id
LEFT JOIN generation ON generation.trial_id = trial.id
"""
