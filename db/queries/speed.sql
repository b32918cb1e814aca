-- How fast is each arm, in each prompt class? [what is faster]
--
-- Averages over a night mix the arms' speed with the machine's drift; `against-control` does not.
--
-- :run = last (the run)
SELECT arm, prompt_class, count(*) AS n, avg(decode_tps) AS decode_tps, avg(ttft_s) AS ttft_s
FROM trial_flat
WHERE run_id = :run AND kind = 'measured' AND status = 'done' AND NOT is_aa
GROUP BY arm, prompt_class
ORDER BY prompt_class, decode_tps DESC
