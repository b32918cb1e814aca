-- What does a run's context cost, by depth? [what is faster]
--
-- For workload=depths: means over the measured trials of each depth. `cached_tokens` shows what an engine's cache held;
-- empty: the engine does not report it.
--
-- :run = last (the run)
SELECT arm.name AS arm, CAST(substr(generation.prompt_class, 7) AS INTEGER) AS depth, count(*) AS n,
    avg(generation.prompt_tokens) AS prompt_tokens, avg(generation.cached_tokens) AS cached_tokens,
    avg(generation.ttft_s) AS ttft_s, avg(generation.prefill_tps) AS prefill_tps,
    avg(generation.decode_tps) AS decode_tps, 1000 * avg(1 / generation.decode_tps) AS ms_per_token
FROM trial
JOIN arm ON arm.id = trial.arm_id
JOIN generation ON generation.trial_id = trial.id
WHERE trial.run_id = :run AND trial.kind = 'measured' AND trial.status = 'done'
    AND generation.prompt_class GLOB 'depth [0-9]*'
GROUP BY arm.id, depth
ORDER BY arm.is_control DESC, arm.id, depth
