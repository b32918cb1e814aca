-- One row per comparison of the newest audit of each run.
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
    audit.compositions AS compositions,
    comparison.workload AS workload
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
