-- How has an arm done over time, and under which versions? [what is faster]
--
-- Days differ in more than their versions: for a claim, run both versions in one run.
--
-- :arm (its name)
-- :since = 2000-01-01 (a UTC date: trials from then on)
SELECT date(started_at) AS day, host, mlx_version, mlx_lm_version, os_build, count(*) AS n,
    avg(decode_tps) AS decode_tps
FROM trial_flat
WHERE arm = :arm AND started_at >= :since AND kind = 'measured' AND status = 'done' AND NOT simulated
GROUP BY day, host, mlx_version, mlx_lm_version, os_build
ORDER BY day
