-- Are the arms' answers the same? [speculation]
--
-- :run = last (the run)
SELECT prompt_id, turn, count(DISTINCT token_ids_sha256) AS different_answers, count(DISTINCT arm) AS arms
FROM trial_flat
WHERE run_id = :run AND kind = 'measured' AND status = 'done'
GROUP BY prompt_id, turn
ORDER BY prompt_id, turn
