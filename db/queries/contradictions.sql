-- Which generations contradict themselves? [faults and doubts]
--
-- :run = last (the run)
SELECT flag.value AS flag, count(*) AS generations
FROM trial_flat, json_each(trial_flat.flags) AS flag
WHERE run_id = :run
GROUP BY flag.value
ORDER BY generations DESC
