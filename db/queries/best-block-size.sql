-- Which block size is best, by chip and MLX version? [what is faster]
--
-- By the ratio to the control of its own rounds, as the newest audit of each run has it, averaged over runs; per
-- checkpoint, engine, control and prompt class. `supported` counts the runs in which it was faster beyond doubt.
WITH widths AS (
    SELECT verdict_flat.chip, environment.mlx_version, checkpoint.name AS checkpoint, arm.engine, verdict_flat.control,
        coalesce(verdict_flat.prompt_class, 'all') AS prompt_class, arm.block_size,
        avg(verdict_flat.ratio) AS ratio, count(*) AS runs,
        sum(verdict_flat.verdict = 'supported' AND verdict_flat.direction = 'faster') AS supported
    FROM verdict_flat
    JOIN arm ON arm.run_id = verdict_flat.run_id AND arm.name = verdict_flat.treatment
    LEFT JOIN checkpoint ON checkpoint.id = arm.checkpoint_id
    LEFT JOIN environment ON environment.id = (
        SELECT trial.environment_id FROM trial
        WHERE trial.arm_id = arm.id AND trial.environment_id IS NOT NULL LIMIT 1
    )
    WHERE arm.block_size IS NOT NULL AND coalesce(verdict_flat.workload, verdict_flat.turn) IS NULL
        AND verdict_flat.metric <> 'ttft_s'
        AND verdict_flat.ratio IS NOT NULL AND NOT verdict_flat.simulated
    GROUP BY verdict_flat.chip, environment.mlx_version, checkpoint.name, arm.engine, verdict_flat.control,
        verdict_flat.prompt_class, arm.block_size
),
placed AS (
    SELECT *, rank() OVER (
        PARTITION BY chip, mlx_version, checkpoint, engine, control, prompt_class ORDER BY ratio DESC
    ) AS place
    FROM widths
)
SELECT chip, mlx_version, checkpoint, engine, prompt_class, block_size, ratio, control, runs, supported
FROM placed
WHERE place = 1
ORDER BY chip, mlx_version, checkpoint, engine, prompt_class
