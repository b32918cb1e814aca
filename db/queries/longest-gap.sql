-- How long was the longest wait between two tokens? [what is faster]
--
-- :run = last (the run)
SELECT arm, max(gap_us) / 1000.0 AS longest_gap_ms
FROM (
    SELECT arm.name AS arm,
        stamp.value - lag(stamp.value) OVER (PARTITION BY generation.id ORDER BY stamp.key) AS gap_us
    FROM trial
    JOIN arm ON arm.id = trial.arm_id
    JOIN generation ON generation.trial_id = trial.id
    JOIN json_each(generation.stamps_us) AS stamp
    WHERE trial.run_id = :run AND trial.kind = 'measured'
)
GROUP BY arm
ORDER BY longest_gap_ms DESC
