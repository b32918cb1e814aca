"""The frozen plan of a run that another tool made: what every part of interlace that reads a run expects. Pure.

Nothing was drawn and nothing can be run again: the plan has no prompts' texts and no worker behind its engine.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.errors import InputError
from orchestrator.importers.foreign_run import ForeignArm, ForeignResults, Model
from orchestrator.jsonable import bounded
from orchestrator.plan import Arm, Design, Gate, Plan, Prompt
from orchestrator.vocabulary import METRICS

NOTHING_TO_RUN = "foreign"  # in place of the worker class, which does not exist
ORDER = "none: another tool's, in the order of its file"


def make_plan(
    results: ForeignResults,
    *,
    experiment: str,
    source: str,
    interlace_version: str,
    metric: str | None = None,
    control: str | None = None,
) -> Plan:
    """The plan.

    Raises:
        InputError: the control is not an arm of the file, or no trial has the metric.
    """
    names = [arm.name for arm in results.arms]
    if control is not None and control not in names:
        raise InputError(f"--control {control}: no such arm in {source}; it has {', '.join(names)}")
    return Plan(
        interlace_version=interlace_version,
        experiment=experiment,
        command=("db", "import", source),
        arms=tuple(_arm(arm) for arm in results.arms),
        control=control or names[0],
        prompts=_prompts(results),
        design=Design(
            rounds=0,
            seed=0,
            metric=metric_of(results, metric, source=source),
            alpha=0.05,
            margin=0.02,
            aa=False,
            bracket=False,
            interleave_by="workload",
            residency="resident",
            warmups=0,
            evidence="record",
            on_preflight_failure="stop",
        ),
        gate=Gate(),
        notes=(f"imported from {results.format}: the order was not drawn at random", *results.notes),
    )


def metric_of(results: ForeignResults, wanted: str | None, *, source: str) -> str:
    """The metric that an audit compares: the requested one, else the one that most arms have; ties go by `METRICS`.

    Raises:
        InputError: no trial has it.
    """
    arms = {
        metric: {trial.arm for trial in results.trials if getattr(trial.generation, metric) is not None}
        for metric in METRICS
    }
    measured = [metric for metric in METRICS if arms[metric]]
    if wanted is not None and wanted not in measured:
        known = ", ".join(measured) or "nothing that can be compared"
        raise InputError(f"--metric {wanted}: no trial in {source} has it; it has {known}")
    return wanted or max(METRICS, key=lambda metric: (len(arms[metric]), -list(METRICS).index(metric)))


def _arm(arm: ForeignArm) -> Arm:
    return Arm(
        name=arm.name,
        checkpoint=_checkpoint(arm.model) | {"draft": None if arm.draft is None else arm.draft.name},
        engine={"_target_": NOTHING_TO_RUN, "name": arm.engine} | _plain(arm.settings),
        sampling={"name": "unknown", "temperature": arm.temperature},
        draft=None if arm.draft is None else _checkpoint(arm.draft),
    )


def _checkpoint(model: Model) -> dict[str, Any]:
    return {"name": model.name, "source": "unknown", "bits": model.bits}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the keys that would be taken for the engine's own name."""
    return {key: bounded(value) for key, value in settings.items() if key not in ("name", "_target_")}


def _prompts(results: ForeignResults) -> tuple[Prompt, ...]:
    """A placeholder for each prompt: its text is unknown, so its name distinguishes it from others."""
    found: dict[str, Prompt] = {}
    for trial in results.trials:
        one = trial.generation
        found.setdefault(
            one.prompt,
            Prompt(
                id=one.prompt,
                workload=results.format,
                prompt_class=one.prompt_class,
                turns=(({"role": "unknown", "content": f"{results.format}: {one.prompt}"},),),
                max_tokens=one.max_tokens,
            ),
        )
    return tuple(found.values())


def arm_config(arm: ForeignArm) -> dict[str, Any]:
    """The stored configuration of an arm: its settings, and everything else that the file states of it."""
    return asdict(_arm(arm)) | {"kept": bounded(dict(arm.kept))}
