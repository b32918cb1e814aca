"""Writes the table of docs/how-to/articles.md: what each stored experiment of the articles needs.

    python docs/articles.py

A test holds the page equal to the plans. Nothing is fetched: sizes are those of conf/published.toml.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator.configuration.compose import make_plan
from orchestrator.planning.estimate import about, apple
from orchestrator.planning.fit import gb
from orchestrator.planning.forecast import forecast
from orchestrator.planning.residency import plan_of
from orchestrator.schedule import build_schedule
from workers.machine.bandwidth import published_gb_per_s

PAGE = Path(__file__).with_name("how-to") / "articles.md"
SWEEPS = (
    "dflash2_27b_in_process",
    "dflash2_27b_omlx",
    "dflash2_27b_draft_bits",
    "dflash_mtp_35b",
    "speculation_x_bits_35b",
)
# Chip, GPU cores, memory in GB, and of it Metal's recommended working set: as the articles state it, or two thirds.
CHIPS = (("Apple M5 Pro", 20, 48, 37.4), ("Apple M4 Max", 40, 128, 128 * 2 / 3))
_BEGIN, _END = "<!-- table: written by docs/articles.py -->", "<!-- end of table -->"


def rewritten(text: str) -> str:
    """The page with its table as the plans have it."""
    body = "\n".join(_table())
    return re.sub(f"{_BEGIN}.*?{_END}", lambda _: f"{_BEGIN}\n\n{body}\n\n{_END}", text, flags=re.DOTALL)


def _table() -> Iterator[str]:
    yield (
        "| `sweep=` | arms | the largest arm needs | "
        + " | ".join(f"{chip}, {memory_gb} GB" for chip, _, memory_gb, _ in CHIPS)
        + " |"
    )
    yield "|---|---|---|" + "---|" * len(CHIPS)
    for name in SWEEPS:
        # Where all arms would fit at once, the plan could differ with the machine that it is made on.
        plan = make_plan([f"sweep={name}", "design.residency=swap", "design.interleave_by=workload"]).plan
        schedule = build_schedule(plan)
        largest = max(arm.known_bytes for arm in plan_of(plan.arms, plan.prompts).arms)
        durations = []
        for chip, gpu_cores, _, working_set_gb in CHIPS:
            if largest > working_set_gb * 1e9:
                durations.append("does not fit")
                continue
            bandwidth, _ = published_gb_per_s(chip, gpu_cores)
            seconds = forecast(plan, schedule, machine=apple(bandwidth, chip)).duration_s
            durations.append("unknown" if seconds is None else about(seconds))
        yield f"| `{name}` | {len(plan.arms)} | {gb(largest)} | " + " | ".join(durations) + " |"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
