-- How much did the machine drift in each run? [the machine]
--
-- The last control run over the first, prompt by prompt, minus 1: by so much the same configuration changed while
-- nothing else did.
WITH ends AS (
    SELECT run.id AS run, run.created_at, run.experiment_id, run.host_id,
        (
            SELECT trial.id FROM trial
            WHERE trial.run_id = run.id AND trial.kind = 'bracket' AND trial.status = 'done'
            ORDER BY trial.sequence LIMIT 1
        ) AS first_trial,
        (
            SELECT trial.id FROM trial
            WHERE trial.run_id = run.id AND trial.kind = 'bracket' AND trial.status = 'done'
            ORDER BY trial.sequence DESC LIMIT 1
        ) AS last_trial
    FROM run
    WHERE NOT run.simulated
)
SELECT ends.run, experiment.name AS experiment, host.name AS host, ends.created_at,
    round(100 * (avg(later.end_to_end_tps / earlier.end_to_end_tps) - 1), 1) AS percent, count(*) AS prompts
FROM ends
JOIN experiment ON experiment.id = ends.experiment_id
JOIN host ON host.id = ends.host_id
JOIN generation AS earlier ON earlier.trial_id = ends.first_trial
JOIN generation AS later
    ON later.trial_id = ends.last_trial AND later.position = earlier.position
WHERE ends.first_trial <> ends.last_trial AND later.prompt_id = earlier.prompt_id AND later.turn = earlier.turn
GROUP BY ends.run
ORDER BY ends.created_at DESC
