-- What was left out, and why? [faults and doubts]
--
-- Trials that failed, that a rule excluded, or that were cut short. No rule looks at a trial's speed.
--
-- :run = last (the run)
SELECT arm.name AS arm, trial.kind, trial.status, coalesce(trial.error_kind, trial.excluded_reason) AS reason,
    trial.error_message, count(*) AS trials
FROM trial
JOIN arm ON arm.id = trial.arm_id
WHERE trial.run_id = :run AND trial.status <> 'done'
GROUP BY arm.name, trial.kind, trial.status, reason, trial.error_message
ORDER BY trials DESC, arm.name
