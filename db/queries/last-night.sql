-- What ran last night, and what came of it? [runs]
--
-- The runs with a trial in the hours before the newest trial of all. `supported` counts verdicts over all prompts.
--
-- :hours = 16 (how far back from the newest trial)
SELECT run.id AS run, experiment.name AS experiment, host.name AS host, run.status,
    (SELECT count(*) FROM trial WHERE trial.run_id = run.id) AS trials,
    (SELECT count(*) FROM trial WHERE trial.run_id = run.id AND trial.status <> 'done') AS left_out,
    (SELECT count(*) FROM verdict_flat
        WHERE verdict_flat.run_id = run.id AND coalesce(workload, prompt_class, turn) IS NULL) AS verdicts,
    (SELECT count(*) FROM verdict_flat
        WHERE verdict_flat.run_id = run.id AND coalesce(workload, prompt_class, turn) IS NULL
        AND verdict = 'supported') AS supported,
    run.note
FROM run
JOIN experiment ON experiment.id = run.experiment_id
JOIN host ON host.id = run.host_id
WHERE run.id IN (
    SELECT trial.run_id
    FROM trial
    WHERE trial.started_at >= strftime(
        '%Y-%m-%d %H:%M:%f', (SELECT max(newest.started_at) FROM trial AS newest), '-' || :hours || ' hours'
    )
)
ORDER BY run.created_at
