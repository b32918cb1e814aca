-- How well does the draft guess, by prompt class and width? [speculation]
--
-- `block_size` is how many tokens one pass checks, `accept_length` how many it yields.
--
-- :run = last (the run)
SELECT arm, block_size, prompt_class, avg(accept_length) AS accept_length,
    1.0 * sum(accepted) / sum(drafted) AS acceptance_rate, count(*) AS n
FROM trial_flat
WHERE run_id = :run AND kind = 'measured' AND drafted > 0
GROUP BY arm, block_size, prompt_class
ORDER BY accept_length DESC
