-- How long does one pass take, by its width? [speculation]
--
-- `cost` is the time over that of the narrowest timed pass: if it grows more slowly than the width, checking several
-- tokens at once pays.
--
-- :run = last (the run)
SELECT arm.name AS arm, pass_time.role, pass_time.width, 1000 * pass_time.median_s AS median_ms,
    1000 * pass_time.low_s AS low_ms, 1000 * pass_time.high_s AS high_ms,
    pass_time.median_s / first_value(pass_time.median_s) OVER (
        PARTITION BY pass_time.arm_id, pass_time.role ORDER BY pass_time.width
    ) AS cost
FROM pass_time
JOIN arm ON arm.id = pass_time.arm_id
WHERE pass_time.run_id = :run
ORDER BY arm.name, pass_time.role, pass_time.width
