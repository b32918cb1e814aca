-- Which differences are real? [what is faster]
--
-- Of the run's newest audit: over all, then by workload, prompt class or turn. What each verdict means: docs/method.md.
--
-- :run = last (the run)
SELECT treatment, coalesce(workload, prompt_class, 'turn ' || turn, 'all') AS scope, verdict, direction, ratio, ci_low, ci_high, p_value
FROM verdict_flat
WHERE run_id = :run
ORDER BY position
