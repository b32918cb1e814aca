-- Where do the arms' answers diverge from the control's? [speculation]
--
-- near_tie: the two tokens are as likely as rounding can tell. real: they are not, so the arm computes something else.
--
-- :run = last (the run)
SELECT arm.name AS arm, divergence.prompt_id, divergence.turn, divergence.token_index, divergence.verdict,
    divergence.control_text, divergence.arm_text, divergence.gap, divergence.rounding, divergence.reason
FROM divergence
JOIN arm ON arm.id = divergence.arm_id
WHERE divergence.run_id = :run
ORDER BY divergence.verdict DESC, arm.name, divergence.prompt_id, divergence.turn
