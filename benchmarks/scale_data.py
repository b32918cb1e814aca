"""Fills a database with runs as a year of nights would leave them, fast: rows go in by the thousand.

What a row holds is made up, its size and its spread are not: token ids, stamps, verify steps and text of real lengths,
63 readings per trial, three machines, four versions of MLX, trials that ran hot, failed, or were left out.
"""

import datetime as dt
import itertools
import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from db.models import new_id
from orchestrator.configuration.compose import make_plan
from orchestrator.plan import Plan
from orchestrator.planning.weights import ArmWeights
from orchestrator.running.recorder import create_run
from orchestrator.schedule import ScheduledTrial, build_schedule
from workers.machine.host import HostFacts

START = dt.datetime(2025, 11, 1, 20, 0, tzinfo=dt.UTC)
TOKENS = 200  # of an answer
HOURS_BETWEEN = 7  # of one run's start and the next one's
EXPERIMENTS = {
    "block-size": (
        "checkpoint=qwen3-8b-4bit,qwen3-8b-8bit",
        "engine=mlx_lm,mlx_lm_draft",
        "engine.block_size=2,4,8",
    ),
    "six-bits": ("checkpoint=qwen3-8b-6bit", "engine=mlx_lm,mlx_lm_draft", "engine.block_size=2,3,4,6,8"),
    "small": (
        "checkpoint=qwen3-0.6b-4bit,qwen3-0.6b-8bit,qwen3-0.6b-bf16",
        "engine=mlx_lm",
        "sampling.temperature=0,0.7",
    ),
    "llama": ("checkpoint=llama-3.2-1b-4bit,llama-3.2-3b-4bit", "engine=mlx_lm,prompt_lookup"),
    "large": ("checkpoint=qwen3-30b-a3b-4bit,qwen3.8-27b-4bit", "engine=mlx_lm", "sampling.temperature=0,0.7"),
    "lookup": ("checkpoint=smollm2-4bit,smollm2-8bit,smollm2-f32", "engine=mlx_lm,prompt_lookup"),
}
WORKLOADS = (  # a trial is five prompts, or one prompt of two turns
    ("workload=five_prompts", "design.interleave_by=workload", "design.rounds=24"),
    ("workload=two_turns", "design.interleave_by=prompt", "design.rounds=40"),
)
HOSTS = (("studio", "Apple M4 Max", 64), ("book", "Apple M3 Pro", 36), ("mini", "Apple M2", 16))
VERSIONS = (("0.31.0", "0.30.1"), ("0.32.0", "0.31.3"), ("0.32.4", "0.32.2"), ("0.33.1", "0.33.0"))
READINGS = (
    *(("before", f"reading_{n}") for n in range(23)),
    *(("during", f"reading_{n}_{how}") for n in range(10) for how in ("mean", "max")),
    *(("after", f"reading_{n}") for n in range(20)),
)
_POOL = 50  # different answers, and different stamps
_FORMAT = "%Y-%m-%d %H:%M:%S.%f"

Row = tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class Filler:
    """Adds runs to one database until it holds as many generations as wanted."""

    database: Engine
    path: Path
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    generations: int = 0
    runs: int = 0
    plans: list[tuple[str, Plan]] = field(default_factory=list)  # with their experiment
    environments: list[str] = field(default_factory=list)
    answers: list[tuple[str, str, str, str]] = field(default_factory=list)  # token ids, stamps, steps, text

    def fill(self, generations: int) -> None:
        """Add whole runs up to at least this number."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA cache_size=-500000")
            if not self.plans:
                self._prepare(connection)
            while self.generations < generations:
                self._run(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self.plans = [
            (name, make_plan([*arms, *workload]).plan) for workload in WORKLOADS for name, arms in EXPERIMENTS.items()
        ]
        self.answers = [_answer(self.rng) for _ in range(_POOL)]
        for mlx, mlx_lm in VERSIONS:
            self.environments.append(new_id())
            packages = json.dumps({"mlx": mlx, "mlx-lm": mlx_lm} | {f"package-{n}": f"{n}.0" for n in range(40)})
            row = (self.environments[-1], new_id(), "3.12.4", "0.1.0", mlx, mlx_lm, "macOS 15.5", "24F74", packages)
            connection.execute(f"INSERT INTO environment VALUES ({', '.join('?' * len(row))})", row)

    def _run(self, connection: sqlite3.Connection) -> None:
        """One run, a few hours after the one before."""
        number, self.runs = self.runs, self.runs + 1
        experiment, plan = self.plans[number % len(self.plans)]
        name, chip, gib = HOSTS[number // len(self.plans) % len(HOSTS)]
        host = HostFacts(
            hostname=name,
            os="macOS 15.5",
            os_build="24F74",
            chip=chip,
            cpu_count=12,
            performance_cores=8,
            gpu_cores=20,
            memory_bytes=gib * 2**30,
            boot_id="boot",
        )
        nothing = ArmWeights(for_worker={}, target=None, draft=None)
        weights = {arm.name: nothing for arm in plan.arms}
        made = create_run(self.database, plan, host=host, weights=weights, log_root=Path("/tmp/logs"))
        run = _Run(
            id=made.run_id,
            plan=plan,
            arm_ids=made.arm_ids,
            started_at=START + dt.timedelta(hours=HOURS_BETWEEN * number),
            environment=self.environments[min(number // 200, len(self.environments) - 1)],
            speed=0.8 + 0.1 * (number // len(self.plans) % len(HOSTS)),
        )
        connection.execute("BEGIN IMMEDIATE")
        run.finish(connection, experiment=experiment)
        rows = run.rows(self.rng, self.answers)
        for table, columns in COLUMNS.items():
            marks = ", ".join("?" * len(columns.split()))
            connection.executemany(f"INSERT INTO {table} ({', '.join(columns.split())}) VALUES ({marks})", rows[table])
        connection.execute("COMMIT")
        self.generations += len(rows["generation"])


COLUMNS = {
    "round": 'id run_id "index" attempt prompt_id "order"',
    "trial": "id run_id arm_id round_id environment_id kind is_aa sequence position seed started_at wall_s monotonic_s"
    " gate_wait_s status error_kind error_message excluded_reason thermal_before thermal_max thermal_after power_source"
    " log_path ordinal gate_state gate_detail boot_id",
    "generation": "id trial_id position prompt_id workload prompt_class turn prompt_sha256 started_at prompt_tokens"
    " cached_tokens completion_tokens finish_reason ttft_s prefill_tps decode_tps end_to_end_tps total_s drafted"
    " accepted verify_steps accept_length acceptance_rate requested engaged useful engine_decode_tps engine_gap flags"
    " peak_memory_bytes cpu_s text text_sha256 token_ids token_ids_sha256 stamps_us steps stamps_of",
    "evidence": "id generation_id mechanism requested engaged useful source text drafted accepted",
    "telemetry": "id trial_id phase field value value_text source reason",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    id: str
    plan: Plan
    arm_ids: dict[str, str]
    started_at: dt.datetime
    environment: str
    speed: float

    def finish(self, connection: sqlite3.Connection, *, experiment: str) -> None:
        """Set what an executed run would have set."""
        started = self.started_at.strftime(_FORMAT)
        connection.execute(
            "INSERT OR IGNORE INTO experiment (id, name, created_at) VALUES (?, ?, ?)", (new_id(), experiment, started)
        )
        connection.execute(
            "UPDATE run SET status = 'done', created_at = ?, finished_at = ?,"
            " experiment_id = (SELECT id FROM experiment WHERE name = ?) WHERE id = ?",
            (started, (self.started_at + dt.timedelta(hours=7)).strftime(_FORMAT), experiment, self.id),
        )
        for arm in self.plan.arms:
            width = arm.engine.get("block_size")
            connection.execute(
                "UPDATE arm SET engine_version = '0.32.2', block_size = ?, drafted_per_step = ?, load_s = 4.2,"
                " fingerprint = config_sha256 WHERE id = ?",
                (width, None if width is None else width - 1, self.arm_ids[arm.name]),
            )

    def rows(self, rng: random.Random, answers: Sequence[tuple[str, str, str, str]]) -> dict[str, list[Row]]:
        """The rows of every table, by table."""
        found: dict[str, list[Row]] = {table: [] for table in COLUMNS}
        round_ids: dict[int, str] = {}
        for ordinal, trial in enumerate(build_schedule(self.plan)):
            if trial.round is not None and trial.round not in round_ids:
                round_ids[trial.round] = new_id()
                found["round"].append((round_ids[trial.round], self.id, trial.round, 0, trial.prompt_ids[0], "[]"))
            round_id = None if trial.round is None else round_ids[trial.round]
            self._trial(found, trial, ordinal, round_id, rng, answers)
        return found

    def _trial(
        self,
        found: dict[str, list[Row]],
        trial: ScheduledTrial,
        ordinal: int,
        round_id: str | None,
        rng: random.Random,
        answers: Sequence[tuple[str, str, str, str]],
    ) -> None:
        trial_id = new_id()
        started = (self.started_at + dt.timedelta(seconds=40 * ordinal)).strftime(_FORMAT)
        chance = rng.random()
        status = "invalid" if chance < 0.004 else "excluded" if chance < 0.02 else "done"
        hot = int(rng.random() < 0.01)
        fault = ("out_of_memory", "the worker ran out of memory") if status == "invalid" else (None, None)
        reason = "thermal: level 2 while it ran, above 1" if status == "excluded" else None
        detail = '{"waited_for":{"thermal_level":12.5},"not_held":null,"unreadable":{}}'
        found["trial"].append(
            (
                *(trial_id, self.id, self.arm_ids[trial.arm], round_id, self.environment, trial.kind, trial.is_aa),
                *(trial.sequence, trial.position, trial.seed, started, 30.0, 30.0, 0.0, status, *fault, reason),
                *(0, hot, 0, "mains", "/tmp/logs/worker.log", ordinal, "open", detail, "boot"),
            )
        )
        found["telemetry"] += [
            (new_id(), trial_id, phase, name, rng.random() * 100, None, "powermetrics", None)
            for phase, name in READINGS
        ]
        if status != "invalid":
            self._generations(found, trial, trial_id, started, rng, answers)

    def _generations(
        self,
        found: dict[str, list[Row]],
        trial: ScheduledTrial,
        trial_id: str,
        started: str,
        rng: random.Random,
        answers: Sequence[tuple[str, str, str, str]],
    ) -> None:
        (width,) = (arm.engine.get("block_size") for arm in self.plan.arms if arm.name == trial.arm)
        prompts = [prompt for prompt in self.plan.prompts if prompt.id in trial.prompt_ids]
        turns = ((prompt, turn) for prompt in prompts for turn in range(len(prompt.turns)))
        for position, (prompt, turn) in enumerate(turns):
            tps = 50 * self.speed * (1.0 if width is None else 1.1 + 0.05 * width) * rng.lognormvariate(0, 0.01)
            token_ids, stamps, steps, text = rng.choice(answers)
            key = new_id()
            drafting = width is not None
            total_s = 0.3 + TOKENS / tps
            counts = (300, 200, 100, 3.0, 0.66) if drafting else (None,) * 5
            found["generation"].append(
                (
                    *(key, trial_id, position, prompt.id, prompt.workload, prompt.prompt_class, turn, "p" * 64),
                    *(started, 120, 0, TOKENS, "length", 0.3 + turn, 400.0, tps, TOKENS / total_s, total_s, *counts),
                    *(drafting, drafting, drafting, tps, 0.0, "[]", 6 * 2**30, 2.0, text, "t" * 64, token_ids),
                    *("i" * 64, stamps, steps if drafting else None, "token"),
                )
            )
            words = "200 of 300 drafted tokens accepted" if drafting else "no token came from a draft"
            mechanism = "draft_model" if drafting else "plain"
            found["evidence"].append(
                (key, key, mechanism, drafting, drafting, drafting, "mlx_lm", words, counts[0], counts[1])
            )


def _answer(rng: random.Random) -> tuple[str, str, str, str]:
    token_ids = [rng.randrange(150_000) for _ in range(TOKENS)]
    stamps = itertools.accumulate(rng.randrange(15_000, 25_000) for _ in range(TOKENS))
    steps = [[3, accepted, accepted + 1] for accepted in (rng.randrange(4) for _ in range(TOKENS // 3))]
    words = " ".join("".join(rng.choices("etaoinshrdlu", k=rng.randrange(2, 9))) for _ in range(TOKENS * 3 // 4))
    return *(json.dumps(value, separators=(",", ":")) for value in (token_ids, list(stamps), steps)), words
