"""A small database with two runs whose numbers are known, for tests that read."""

import datetime as dt
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db import models
from db.session import transaction

START = dt.datetime(2026, 3, 1, 22, 0, tzinfo=dt.UTC)
ROUNDS = 3
# decode tokens a second by arm and prompt class: the draft helps with code and hurts with prose.
RATES = {("plain-8bit", "code"): 50.0, ("plain-8bit", "prose"): 50.0} | {
    ("plain-4bit", "code"): 60.0,
    ("plain-4bit", "prose"): 60.0,
    ("draft-8bit", "code"): 75.0,
    ("draft-8bit", "prose"): 40.0,
}
CLASSES = ("code", "prose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """The facts about the database that a test needs."""

    first_run: str  # the earlier run: two arms, audited once
    last_run: str  # three arms, a failed trial, audited twice
    trials: int  # of the last run
    generations: int


def fill(engine: Engine) -> Filled:
    """Write both runs."""
    with transaction(engine) as session:
        shared = _shared(session)
        first = _run(session, shared, day=0, arms=("plain-8bit", "plain-4bit"))
        _audit(session, first, hours=1, verdicts=(("plain-4bit", None, "supported", "faster", 1.2),))
    with transaction(engine) as session:
        last = _run(session, shared, day=1, arms=("plain-8bit", "plain-4bit", "draft-8bit"))
        _failed_trial(session, last, "draft-8bit")
        _audit(session, last, hours=25, verdicts=(("plain-4bit", None, "underpowered", None, 1.0),))
        _audit(
            session,
            last,
            hours=26,
            verdicts=(
                ("plain-4bit", None, "supported", "faster", 1.2),
                ("draft-8bit", None, "could_be_drift", None, 1.02),
                ("draft-8bit", "code", "supported", "faster", 1.5),
                ("draft-8bit", "prose", "supported", "slower", 0.8),
            ),
        )
        _looked_at(session, last)
    measured = ROUNDS * len(CLASSES) * 4
    return Filled(first_run=first.run, last_run=last.run, trials=measured + 3 + 2 + 1, generations=measured + 3 + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    experiment: str
    host: str
    environment: str
    checkpoints: dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    run: str
    arms: dict[str, str]
    environment: str
    started_at: dt.datetime


def _looked_at(session: Session, made: "_Run") -> None:
    """Add rows that are not trials: a place in the queue, a divergence, the time of a pass."""
    session.add(
        models.QueueEntry(
            run_id=made.run, position=1.5, added_at=START, state="done", checked_at=START, checked={"plain-8bit": None}
        )
    )
    session.add(
        models.Divergence(
            run_id=made.run,
            arm_id=made.arms["plain-4bit"],
            prompt_id="prose-0",
            turn=0,
            token_index=7,
            control_token=11,
            arm_token=13,
            control_text=" red",
            arm_text=" green",
            context_text="Name three colours:",
            top=[[11, " red", -0.5], [13, " green", -1.5]],
            gap=1.0,
            rounding=0.001,
            verdict="real",
            reason="the gap of 1.0 is beyond rounding",
        )
    )
    session.add(
        models.LockedPackage(
            run_id=made.run,
            environment="mlx-lm 0.31.3",
            python="3.11.7",
            name="mlx-lm",
            version="0.31.3",
            file="mlx_lm-0.31.3-py3-none-any.whl",
            sha256="a" * 64,
            tag="py3-none-any",
            source=None,
            is_named=True,
        )
    )
    session.add(
        models.PassTime(
            run_id=made.run,
            arm_id=made.arms["draft-8bit"],
            role="target",
            width=4,
            median_s=0.04,
            low_s=0.039,
            high_s=0.042,
            repeats=9,
            context_tokens=128,
        )
    )


def _shared(session: Session) -> _Shared:
    experiment = models.Experiment(id=models.new_id(), name="draft-or-quantise", created_at=START)
    host = models.Host(
        id=models.new_id(),
        name="studio",
        machine_sha256="h" * 64,
        chip="Apple M4",
        cpu_count=10,
        memory_bytes=32 * 2**30,
        detail={"os": "macOS 15.5", "missing": {}},
    )
    environment = models.Environment(
        id=models.new_id(),
        sha256="e" * 64,
        python="3.12.4",
        interlace_version="0.1.0",
        mlx_version="0.32.4",
        mlx_lm_version="0.32.2",
        os="macOS 15.5",
        os_build="24F74",
        packages={"mlx": "0.32.4", "mlx-lm": "0.32.2", "omlx": None},
    )
    checkpoints = [
        models.Checkpoint(
            id=models.new_id(),
            digest=f"digest-{bits}",
            name=f"smollm2-{bits}bit",
            source="imported",
            revision=None,
            bits=bits,
            weights_bytes=bits * 17_000_000,
            config={"name": f"smollm2-{bits}bit", "source": "imported"},
        )
        for bits in (8, 4)
    ]
    session.add_all([experiment, host, environment, *checkpoints])
    return _Shared(
        experiment=experiment.id,
        host=host.id,
        environment=environment.id,
        checkpoints={row.bits or 0: row.id for row in checkpoints},
    )


def _run(session: Session, shared: _Shared, *, day: int, arms: tuple[str, ...]) -> _Run:
    started_at = START + dt.timedelta(days=day)
    run = models.Run(
        id=models.new_id(),
        experiment_id=shared.experiment,
        host_id=shared.host,
        status="done",
        created_at=started_at,
        finished_at=started_at + dt.timedelta(hours=2),
        plan="{}",
        plan_sha256=hashlib.sha256(b"{}").hexdigest(),
        workload_sha256="w" * 64,
        seed=day,
        rounds=ROUNDS,
        metric="decode_tps",
        interleave_by="prompt",
        order_distribution="uniform",
        simulated=False,
        runner_pid=4242,
        runner_started_at=1.5,
        boot_id="boot",
        log_dir="/tmp/logs",
        note=None,
    )
    rows = {name: _arm(shared, run.id, name) for name in arms}
    session.add_all([run, *rows.values()])
    made = _Run(
        run=run.id,
        arms={name: row.id for name, row in rows.items()},
        environment=shared.environment,
        started_at=started_at,
    )
    session.add_all(_trials(session, made))
    return made


def _arm(shared: _Shared, run_id: str, name: str) -> models.Arm:
    kind, bits = name.split("-")
    drafting = kind == "draft"
    return models.Arm(
        id=models.new_id(),
        run_id=run_id,
        name=name,
        is_control=name == "plain-8bit",
        config_sha256=f"config of {name}",
        fingerprint=f"fingerprint of {name}",
        engine="mlx_lm_draft" if drafting else "mlx_lm",
        engine_version="0.32.2",
        checkpoint_id=shared.checkpoints[int(bits[0])],
        draft_checkpoint_id=shared.checkpoints[4] if drafting else None,
        draft="smollm2-4bit" if drafting else None,
        block_size=4 if drafting else None,
        drafted_per_step=3 if drafting else None,
        engine_setting={"num_draft_tokens": 3} if drafting else {},
        temperature=0.0,
        config={"name": name},
        load_s=1.25,
        active_memory_bytes=150_000_000,
        state="active",
        state_reason=None,
    )


def _trials(session: Session, run: _Run) -> Iterator[models.Trial]:
    """Warm-ups, a control run, rounds of every arm and the control again, a control run."""
    sequence = 0
    for name in run.arms:
        yield _trial(run, name, "code", kind="warmup", sequence=sequence)
        sequence += 1
    yield _trial(run, "plain-8bit", "code", kind="bracket", sequence=sequence)
    for index in range(ROUNDS * len(CLASSES)):
        prompt_class = CLASSES[index % len(CLASSES)]
        order = [*run.arms, "plain-8bit"]
        row = models.Round(
            id=models.new_id(), run_id=run.run, index=index, attempt=0, prompt_id=f"set/{prompt_class}", order=order
        )
        session.add(row)
        for position, name in enumerate(order):
            sequence += 1
            yield _trial(
                run,
                name,
                prompt_class,
                kind="measured",
                sequence=sequence,
                round_id=row.id,
                position=position,
                is_aa=position == len(order) - 1,
            )
    yield _trial(run, "plain-8bit", "code", kind="bracket", sequence=sequence + 1, slowdown=0.95)


def _trial(
    run: _Run,
    arm: str,
    prompt_class: str,
    *,
    kind: str,
    sequence: int,
    round_id: str | None = None,
    position: int | None = None,
    is_aa: bool = False,
    slowdown: float = 1.0,
) -> models.Trial:
    started_at = run.started_at + dt.timedelta(seconds=30 * sequence)
    return models.Trial(
        id=models.new_id(),
        run_id=run.run,
        arm_id=run.arms[arm],
        round_id=round_id,
        environment_id=run.environment,
        kind=kind,
        is_aa=is_aa,
        sequence=sequence,
        position=position,
        seed=sequence,
        started_at=started_at,
        wall_s=10.0,
        monotonic_s=10.0,
        gate_wait_s=0.0,
        status="done",
        thermal_before=0,
        thermal_max=1 if sequence == 9 else 0,
        thermal_after=0,
        power_source="mains",
        log_path="/tmp/logs/worker.log",
        generations=[_generation(arm, prompt_class, started_at, slowdown)],
        telemetry=[
            models.Telemetry(phase="before", field="thermal_level", value=0.0, value_text="nominal", source="notify"),
            models.Telemetry(phase="after", field="power_mode", reason="pmset -g names no power mode"),
        ],
    )


def _generation(arm: str, prompt_class: str, started_at: dt.datetime, slowdown: float) -> models.Generation:
    drafting = arm.startswith("draft")
    decode_tps = RATES[arm, prompt_class] * slowdown
    accepted = 60 if prompt_class == "code" else 15
    return models.Generation(
        position=0,
        prompt_id=f"set/{prompt_class}",
        workload="quick",
        prompt_class=prompt_class,
        turn=0,
        prompt_sha256=f"prompt {prompt_class}",
        started_at=started_at,
        prompt_tokens=40,
        cached_tokens=None,
        completion_tokens=101,
        finish_reason="length",
        ttft_s=0.2,
        prefill_tps=200.0,
        decode_tps=decode_tps,
        end_to_end_tps=101 / (0.2 + 100 / decode_tps),
        total_s=0.2 + 100 / decode_tps,
        drafted=120 if drafting else None,
        accepted=accepted if drafting else None,
        verify_steps=40 if drafting else None,
        accept_length=1 + accepted / 40 if drafting else None,
        acceptance_rate=accepted / 120 if drafting else None,
        requested=drafting,
        engaged=drafting,
        useful=drafting,
        engine_decode_tps=decode_tps * 1.001,
        engine_gap=0.001,
        flags=["cache_contradiction"] if prompt_class == "prose" else [],
        peak_memory_bytes=200_000_000 if drafting else 150_000_000,
        cpu_s=2.0,
        text="def f():\n\treturn 1" if prompt_class == "code" else "Once \x1b[31mupon\x1b[0m a time",
        text_sha256=f"text {prompt_class}",
        token_ids=[1, 2, 3],
        token_ids_sha256=f"tokens {prompt_class}",
        stamps_us=[200_000 + round(1e6 * number / decode_tps) for number in range(101)],
        steps=[[3, 2, 1], [3, 1, 2]] if drafting else None,
        evidence=[
            models.Evidence(
                mechanism="draft_model" if drafting else "plain",
                requested=drafting,
                engaged=drafting,
                useful=drafting,
                source="mlx_lm",
                text=f"{accepted} of 120 drafted tokens accepted" if drafting else "no token came from a draft",
                drafted=120 if drafting else None,
                accepted=accepted if drafting else None,
            )
        ],
    )


def _failed_trial(session: Session, run: _Run, arm: str) -> None:
    session.add(
        models.Trial(
            run_id=run.run,
            arm_id=run.arms[arm],
            kind="preflight",
            is_aa=False,
            sequence=-1,
            seed=0,
            started_at=run.started_at - dt.timedelta(minutes=1),
            status="invalid",
            error_kind="out_of_memory",
            error_message="the worker ran out of memory",
            thermal_reason="not read",
        )
    )


def _audit(
    session: Session, run: _Run, *, hours: int, verdicts: tuple[tuple[str, str | None, str, str | None, float], ...]
) -> None:
    session.add(
        models.Audit(
            run_id=run.run,
            created_at=START + dt.timedelta(hours=hours),
            method_version="1",
            metric="decode_tps",
            alpha=0.05,
            margin=0.02,
            seed=0,
            drift=-0.05,
            drift_reason=None,
            summary="as expected",
            comparisons=[
                models.Comparison(
                    position=position,
                    treatment=treatment,
                    control="plain-8bit",
                    prompt_class=prompt_class,
                    turn=None,
                    metric="decode_tps",
                    verdict=verdict,
                    direction=direction,
                    ratio=ratio,
                    ci_low=ratio - 0.03,
                    ci_high=ratio + 0.03,
                    p_value=0.01,
                    rounds=ROUNDS,
                    wins=ROUNDS,
                    aa_ratio=1.001,
                    aa_low=0.99,
                    aa_high=1.01,
                    engaged_share=1.0 if treatment.startswith("draft") else None,
                    reasons=[{"code": "clear", "words": "the interval is clear of 1"}],
                )
                for position, (treatment, prompt_class, verdict, direction, ratio) in enumerate(verdicts)
            ],
        )
    )
