-- Which trials ran hot? [the machine]
--
-- Over all runs, newest first. Levels are the system's own: 0 is nominal.
--
-- :level = 1 (the least thermal level to list)
SELECT trial.started_at, host.name AS host, run.id AS run, arm.name AS arm, trial.thermal_before, trial.thermal_max,
    trial.thermal_after, trial.status, trial.excluded_reason
FROM trial
JOIN run ON run.id = trial.run_id
JOIN host ON host.id = run.host_id
JOIN arm ON arm.id = trial.arm_id
WHERE trial.thermal_max > 0 AND trial.thermal_max >= :level
ORDER BY trial.started_at DESC
