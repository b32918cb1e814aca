-- Where does the engine's own figure disagree with our stopwatch? [faults and doubts]
--
-- :run = last (the run)
SELECT arm, count(*) AS generations, max(abs(engine_gap)) AS largest_gap, sum(abs(engine_gap) > 0.02) AS over_2_percent
FROM trial_flat
WHERE run_id = :run AND engine_gap IS NOT NULL
GROUP BY arm
ORDER BY arm
