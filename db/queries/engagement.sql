-- Did speculation run wherever it was asked for? [speculation]
--
-- Generations of each arm: requested, engaged and useful.
--
-- :run = last (the run)
SELECT arm, count(*) AS generations, sum(requested) AS requested, sum(engaged) AS engaged, sum(useful) AS useful
FROM trial_flat
WHERE run_id = :run AND kind = 'measured' AND generation_id IS NOT NULL
GROUP BY arm
ORDER BY arm
