-- What did the trials wait for? [the machine]
--
-- By the gate's condition. `not_held` counts the trials that started although it still did not hold.
--
-- :run = last (the run)
SELECT waited.key AS condition, count(*) AS trials, sum(waited.value) AS seconds, max(waited.value) AS longest_s,
    sum(trial.gate_state <> 'waited') AS not_held
FROM trial
JOIN json_each(trial.gate_detail, '$.waited_for') AS waited
WHERE trial.run_id = :run
GROUP BY waited.key
ORDER BY seconds DESC
