-- How does each arm compare with the control of its own round? [what is faster]
--
-- Neighbours in time share most of the drift. Only the audit decides what is left of it and whether the difference is
-- real: see `verdicts`.
--
-- :run = last (the run)
SELECT treatment.arm, count(*) AS pairs,
    avg(treatment.decode_tps / control.decode_tps) AS ratio,
    sum(treatment.decode_tps > control.decode_tps) AS wins
FROM trial_flat AS treatment
JOIN trial_flat AS control
    ON control.run_id = treatment.run_id
    AND control.round = treatment.round
    AND control.attempt = treatment.attempt
    AND control.prompt_id = treatment.prompt_id
    AND control.turn = treatment.turn
WHERE treatment.run_id = :run
    AND control.is_control AND NOT control.is_aa AND NOT treatment.is_control
    AND treatment.status = 'done' AND control.status = 'done'
GROUP BY treatment.arm
ORDER BY ratio DESC
