-- How different is the control from itself? [the machine]
--
-- The control is in every round twice. No effect smaller than this deserves a name.
--
-- :run = last (the run)
SELECT count(*) AS pairs, avg(again.decode_tps / once.decode_tps) AS ratio,
    min(again.decode_tps / once.decode_tps) AS lowest, max(again.decode_tps / once.decode_tps) AS highest
FROM trial_flat AS once
JOIN trial_flat AS again
    ON again.run_id = once.run_id AND again.round = once.round AND again.attempt = once.attempt
    AND again.prompt_id = once.prompt_id AND again.turn = once.turn
WHERE once.run_id = :run AND once.is_control AND NOT once.is_aa AND again.is_aa
