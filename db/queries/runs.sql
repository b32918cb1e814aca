-- What has run here? [runs]
--
-- Newest first.
SELECT run.id AS run, experiment.name AS experiment, host.name AS host, run.status, run.created_at,
    (SELECT count(*) FROM trial WHERE trial.run_id = run.id) AS trials, run.simulated,
    run.tags, run.remark
FROM run
JOIN experiment ON experiment.id = run.experiment_id
JOIN host ON host.id = run.host_id
ORDER BY run.created_at DESC, run.id DESC
