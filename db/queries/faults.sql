-- Which faults happened, and how often? [faults and doubts]
--
-- By kind and engine, over all runs.
SELECT trial.error_kind, arm.engine, count(*) AS trials, count(DISTINCT trial.run_id) AS runs,
    max(trial.started_at) AS last_at, trial.error_message AS last_message
FROM trial
JOIN arm ON arm.id = trial.arm_id
WHERE trial.status <> 'done' AND trial.error_kind IS NOT NULL
GROUP BY trial.error_kind, arm.engine
ORDER BY trials DESC
