-- Which configurations are slower now than under the versions before? [what is faster]
--
-- The same configuration, prompts and machine; the newest set of versions against the one before it. Nights differ in
-- more than their versions: to compare two releases, measure both in one run (`environment="mlx-lm==A","mlx-lm==B"`).
--
-- :percent = 2 (changes smaller than this are left out)
WITH sums AS (
    SELECT arm.config_sha256, run.workload_sha256, run.host_id, arm.name AS arm, arm.engine_version,
        trial.environment_id, max(trial.started_at) AS last_at, count(*) AS n,
        sum(generation.end_to_end_tps) AS total
    FROM arm
    JOIN run ON run.id = arm.run_id
    JOIN trial ON trial.arm_id = arm.id
    JOIN generation ON generation.trial_id = trial.id
    WHERE NOT run.simulated AND trial.kind = 'measured' AND trial.status = 'done'
        AND generation.end_to_end_tps IS NOT NULL
    GROUP BY arm.id, trial.environment_id
),
speed AS (
    SELECT sums.config_sha256, sums.workload_sha256, host.name AS host, max(sums.arm) AS arm,
        'mlx ' || coalesce(environment.mlx_version, '?') || ', mlx-lm ' || coalesce(environment.mlx_lm_version, '?')
        || ', engine ' || coalesce(sums.engine_version, '?') || ', ' || coalesce(environment.os_build, '?') AS versions,
        max(sums.last_at) AS last_at, sum(sums.total) / sum(sums.n) AS tps
    FROM sums
    JOIN host ON host.id = sums.host_id
    JOIN environment ON environment.id = sums.environment_id
    GROUP BY sums.config_sha256, sums.workload_sha256, host.name, versions
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
