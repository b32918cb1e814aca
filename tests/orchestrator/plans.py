"""Small plans on the simulated engine, for tests that need a whole run."""

from dataclasses import replace
from typing import Any

from orchestrator.plan import Arm, Deadlines, Design, Gate, Plan, Prompt

CHECKPOINT: dict[str, Any] = {"name": "simulated", "source": "dummy", "bits": None, "draft": None}
SAMPLING: dict[str, Any] = {"name": "greedy", "temperature": 0.0}
# For tests of what a run does, not of when: waits for nothing, reads nothing while a trial runs.
OPEN_GATE = Gate(
    thermal_level_max=None,
    timeout_s=0.0,
    power_source="any",
    cpu_cores_others_max=None,
    gpu_ms_per_s_others_max=None,
    vm_pressure_max=None,
    memory_stalled_max=None,
    swap_growth_bytes_max=None,
    sampler=False,
    exclude_hot_start="none",
    orphans="report",
)
DEADLINES = Deadlines(load_s=20, first_token_s=5, inter_token_s=5, total_s=20, teardown_s=5)


def arm(name: str, **settings: Any) -> Arm:
    """A simulated arm with these engine settings."""
    engine = {"_target_": "workers.engines.simulated.Simulated", "name": "simulated"} | settings
    return Arm(name=name, checkpoint=CHECKPOINT, engine=engine, sampling=SAMPLING, draft=None)


def prompt(number: int = 0, *, prompt_class: str = "code", turns: int = 1, workload: str = "quick") -> Prompt:
    asked = tuple(({"role": "user", "content": f"question {number}, turn {turn}"},) for turn in range(turns))
    return Prompt(id=f"{workload}/{number}", workload=workload, prompt_class=prompt_class, turns=asked, max_tokens=16)


def plan(*arms: Arm, prompts: tuple[Prompt, ...] = (), **design: Any) -> Plan:
    """A plan over the arms given; the first is the control."""
    chosen = Design(
        rounds=6,
        seed=1,
        metric="end_to_end_tps",
        alpha=0.05,
        margin=0.02,
        aa=True,
        bracket=True,
        interleave_by="prompt",
        residency="resident",
        warmups=1,
        evidence="require",
        on_preflight_failure="stop",
        deadlines=DEADLINES,
    )
    return Plan(
        interlace_version="0.0.0",
        experiment="test",
        command=(),
        arms=arms,
        control=arms[0].name,
        prompts=prompts or (prompt(),),
        design=replace(chosen, **design),
        gate=Gate(),
    )
