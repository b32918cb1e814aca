"""Time a plan of a thousand arms and a hundred rounds, imports included.

    python benchmarks/plan_speed.py

Each case runs in a fresh process, three times; wall time and CPU time of the fastest one are shown. Limit: 2 s.
"""

import resource
import subprocess
import sys
import time

ROUNDS = "design.rounds=100"
CASES = {
    "1,000 values of one key": ["engine=simulated", "engine.block_size=range(1,1001)", ROUNDS],
    "10 x 10 x 10 values": [
        "engine=simulated",
        "engine.effect=range(1,11)",
        "engine.decode_tps=range(10,110,10)",
        "sampling.temperature=range(0.1,1.1,0.1)",
        ROUNDS,
    ],
    "10 checkpoints x 100 widths": [
        "checkpoint=glob(*,exclude=[simulated,smollm2*,llama*,qwen3.8*])",
        "engine=mlx_lm_draft",
        "engine.draft=dummy-tiny",
        "engine.block_size=range(2,102)",
        ROUNDS,
    ],
}
SCRIPT = """
import sys
from orchestrator.configuration.compose import make_plan
from orchestrator.schedule import build_schedule
plan = make_plan(sys.argv[1:]).plan
print(len(plan.arms), len(build_schedule(plan)), plan.sha256[:12])
"""


def measure(overrides: list[str]) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds and what was planned."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", SCRIPT, *overrides], capture_output=True, text=True, check=True)
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall_s, cpu_s, done.stdout.strip()


def main() -> None:
    for name, overrides in CASES.items():
        wall_s, cpu_s, planned = min(measure(overrides) for _ in range(3))
        arms, trials, sha256 = planned.split()
        print(f"{name:<28} {arms:>5} arms {trials:>7} trials  wall {wall_s:.2f} s  cpu {cpu_s:.2f} s  {sha256}")


if __name__ == "__main__":
    main()
