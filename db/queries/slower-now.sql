-- Which configurations are slower now than under the versions before? [what is faster]
--
-- The same configuration, prompts and machine; the newest set of versions against the one before it. Nights differ in
-- more than their versions: for a claim, run both in one run (`engine.python`).
--
-- :percent = 2 (changes smaller than this are left out)
WITH speed AS (
    SELECT arm.config_sha256, run.workload_sha256, host.name AS host, min(arm.name) AS arm,
        'mlx ' || coalesce(environment.mlx_version, '?') || ', mlx-lm ' || coalesce(environment.mlx_lm_version, '?')
        || ', engine ' || coalesce(arm.engine_version, '?') || ', ' || coalesce(environment.os_build, '?') AS versions,
        max(trial.started_at) AS last_at, count(*) AS n, avg(generation.end_to_end_tps) AS tps
    FROM run
    JOIN host ON host.id = run.host_id
    JOIN trial ON trial.run_id = run.id
    JOIN arm ON arm.id = trial.arm_id
    JOIN environment ON environment.id = trial.environment_id
    JOIN generation ON generation.trial_id = trial.id
    WHERE NOT run.simulated AND trial.kind = 'measured' AND trial.status = 'done'
    GROUP BY arm.config_sha256, run.workload_sha256, host.name, versions
),
steps AS (
    SELECT *, lag(versions) OVER past AS versions_before, lag(tps) OVER past AS tps_before,
        lead(tps) OVER past IS NULL AS newest
    FROM speed
    WINDOW past AS (PARTITION BY config_sha256, workload_sha256, host ORDER BY last_at)
)
SELECT arm, host, round(100 * (tps / tps_before - 1), 1) AS percent, tps_before, tps AS tps_now, versions_before,
    versions AS versions_now
FROM steps
WHERE newest AND tps < tps_before * (1 - :percent / 100.0)
ORDER BY percent
