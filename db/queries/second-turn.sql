-- How long does a second turn take to begin, by engine? [what is faster]
--
-- An engine that keeps the conversation's cache reads only what is new; `cached` is the share of the prompt that it
-- took from there, if the engine reports it.
--
-- :since = 2000-01-01 (a UTC date: trials from then on)
SELECT host.name AS host, arm.engine, checkpoint.name AS checkpoint, generation.turn, count(*) AS n,
    avg(generation.ttft_s) AS ttft_s, avg(generation.prompt_tokens) AS prompt_tokens,
    avg(1.0 * generation.cached_tokens / generation.prompt_tokens) AS cached
FROM trial
JOIN run ON run.id = trial.run_id
JOIN host ON host.id = run.host_id
JOIN arm ON arm.id = trial.arm_id
JOIN generation ON generation.trial_id = trial.id
LEFT JOIN checkpoint ON checkpoint.id = arm.checkpoint_id
WHERE trial.started_at >= :since AND trial.kind = 'measured' AND trial.status = 'done' AND NOT run.simulated
    AND EXISTS (SELECT 1 FROM generation AS later WHERE later.trial_id = trial.id AND later.turn > 0)
GROUP BY host.name, arm.engine, checkpoint.name, generation.turn
ORDER BY host.name, checkpoint.name, arm.engine, generation.turn
