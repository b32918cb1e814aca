-- In which experiments was anything ever faster, and on which machine? [what is faster]
--
-- Supported verdicts over all prompts, of real runs.
SELECT experiment, host, chip, treatment, control, max(ratio) AS best, count(*) AS verdicts
FROM verdict_flat
WHERE verdict = 'supported' AND direction = 'faster' AND coalesce(workload, prompt_class, turn) IS NULL
    AND NOT simulated
GROUP BY experiment, host, chip, treatment, control
ORDER BY best DESC
