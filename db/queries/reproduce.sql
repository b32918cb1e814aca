-- What exactly is a run, to run it again? [runs]
--
-- :run = last (the run)
SELECT json_extract(plan, '$.command') AS command, plan_sha256, workload_sha256, seed
FROM run
WHERE id = :run
