-- Which readings of the machine are missing, and why? [the machine]
--
-- :run = last (the run)
SELECT telemetry.field, telemetry.reason, count(*) AS times
FROM trial
JOIN telemetry ON telemetry.trial_id = trial.id
WHERE trial.run_id = :run AND telemetry.reason IS NOT NULL
GROUP BY telemetry.field, telemetry.reason
ORDER BY telemetry.field
