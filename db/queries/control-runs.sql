-- How fast was the control at both ends of the run? [the machine]
--
-- One line per turn of a prompt; `since_the_start` is the change from the first one of that prompt.
--
-- :run = last (the run)
SELECT started_at, arm, prompt_id, turn, decode_tps,
    decode_tps / first_value(decode_tps) OVER (PARTITION BY prompt_id, turn ORDER BY sequence) - 1 AS since_the_start
FROM trial_flat
WHERE run_id = :run AND kind = 'bracket' AND status = 'done'
ORDER BY started_at
