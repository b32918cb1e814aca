-- In which runs did an engine never engage? [speculation]
--
-- Arms that asked for a mechanism and never once showed it, over all runs. `unknown` counts answers without a sign
-- either way.
SELECT run.id AS run, experiment.name AS experiment, host.name AS host, arm.name AS arm, arm.engine, arm.draft,
    count(*) AS generations, sum(generation.engaged IS NULL) AS unknown
FROM generation
JOIN trial ON trial.id = generation.trial_id
JOIN arm ON arm.id = trial.arm_id
JOIN run ON run.id = trial.run_id
JOIN experiment ON experiment.id = run.experiment_id
JOIN host ON host.id = run.host_id
WHERE generation.requested = 1 AND generation.engaged IS NOT 1
    AND NOT EXISTS (
        SELECT 1
        FROM trial AS other
        JOIN generation AS shown ON shown.trial_id = other.id
        WHERE other.arm_id = arm.id AND shown.engaged
    )
GROUP BY arm.id
ORDER BY run.created_at DESC, arm.name
