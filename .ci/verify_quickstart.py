"""Check the results of `make quickstart` through the commands that a user would use."""

import json
import subprocess
import sys

CHECKS = {
    "one run, done": ("SELECT count(*) FROM run WHERE status = 'done'", 1),
    "three arms": ("SELECT count(DISTINCT arm) FROM trial_flat", 3),
    "the control twice in every round": (
        "SELECT count(*) FROM (SELECT round, sum(is_control) AS n, count(DISTINCT trial_id) AS trials FROM trial_flat"
        " WHERE kind = 'measured' GROUP BY round HAVING n <> 2 OR trials <> 4)",
        0,
    ),
    "control runs at both ends": (
        "SELECT count(DISTINCT trial_id) FROM trial_flat WHERE kind = 'bracket' AND is_control",
        2,
    ),
    "no trial without its versions": (
        "SELECT count(*) FROM trial_flat WHERE mlx_version IS NULL OR mlx_lm_version IS NULL OR os_build IS NULL",
        0,
    ),
    "nothing simulated": ("SELECT count(*) FROM run WHERE simulated", 0),
    "no measured trial failed": ("SELECT count(*) FROM trial_flat WHERE kind = 'measured' AND status <> 'done'", 0),
    "no generation without evidence": ("SELECT count(*) FROM trial_flat WHERE evidence IS NULL", 0),
    "plain arms asked for nothing": (
        "SELECT count(*) FROM trial_flat WHERE engine = 'mlx_lm' AND (requested OR engaged)",
        0,
    ),
    "the draft engaged and was useful in every measured generation": (
        "SELECT count(*) FROM trial_flat WHERE engine = 'mlx_lm_draft' AND kind = 'measured'"
        " AND NOT (requested AND engaged AND useful AND acceptance_rate > 0 AND acceptance_rate <= 1)",
        0,
    ),
    "a draft never left the model alone with its output: same tokens as plain": (
        "SELECT count(*) FROM trial_flat a JOIN trial_flat b ON a.prompt_id = b.prompt_id AND a.turn = b.turn"
        " WHERE a.engine = 'mlx_lm_draft' AND b.is_control AND a.kind = 'measured' AND b.kind = 'measured'"
        " AND a.token_ids_sha256 <> b.token_ids_sha256",
        0,
    ),
    "rates are positive or missing, never 0": (
        "SELECT count(*) FROM trial_flat WHERE decode_tps <= 0 OR end_to_end_tps <= 0 OR ttft_s <= 0",
        0,
    ),
    "a verdict over all for each treatment": (
        "SELECT count(*) FROM verdict_flat WHERE prompt_class IS NULL AND turn IS NULL",
        2,
    ),
}


def ask(sql: str) -> int:
    """The one number that a query gives."""
    done = subprocess.run(
        ["venv/bin/interlace", "query", sql, "--format", "json"], check=True, capture_output=True, text=True
    )
    (row,) = json.loads(done.stdout)
    (value,) = row.values()
    return int(value)


def main() -> int:
    failed = 0
    for name, (sql, expected) in CHECKS.items():
        found = ask(sql)
        verdict = "ok" if found == expected else f"FAILED: {found}, expected {expected}"
        failed += found != expected
        sys.stdout.write(f"{name}: {verdict}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
