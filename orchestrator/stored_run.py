"""A stored run, as all code that judges or shows it reads it: the only access to its rows in the database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import pandas as pd

from db import frames
from db.engine import Database
from orchestrator.plan import Plan
from orchestrator.planning.frozen_plan import frozen_plan
from workers.sampling import SHAPES_CHANCES, effective, sampler_words

# Of the machine, before a trial: what two arms must share, besides the columns of `trial_flat`.
READINGS = ("power_mode", "nice", "lid", "display")


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run's plan and rows.

    Each table is read once, when it is first asked for, so that all that one command says of a run under way is said of
    the same rows. Tables are shared: a reader that changes one works on a copy.
    """

    database: Database = field(repr=False, compare=False)
    run_id: str
    plan: Plan  # the frozen one

    @classmethod
    def load(cls, database: Database, run_id: str) -> Self:
        """The run with this id.

        Raises:
            RefusedError: its plan is not one that this version can read.
        """
        return cls(database=database, run_id=run_id, plan=frozen_plan(database, run_id))

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per generation in time order: the columns of `trial_flat` and the others that two arms must share.

        These are the readings of `READINGS` before the trial, `sampler` (in words), and of the trial's environment
        `environment_id`, `missing_reason`, `mlx_missing`, `mlx_build` and `packages`; see `db.frames.environments`.
        """
        rows = frames.trials(self.database, self.run_id)
        environments = frames.environments(self.database, self.run_id)
        readings = {name: frames.readings(self.database, self.run_id, name) for name in READINGS}
        samplers = {arm.name: sampler_words(chooser(arm.sampling)) for arm in self.plan.arms}
        return rows.assign(
            sampler=rows["arm"].map(samplers),
            **{name: rows["trial_id"].map(found) for name, found in readings.items()},
            **{name: rows["trial_id"].map(environments[name]) for name in environments.columns},
        )

    @cached_property
    def answers(self) -> pd.DataFrame:
        """The generations of rounds and control runs with their texts and tokens; see `db.frames.answers`."""
        return frames.answers(self.database, self.run_id)

    @cached_property
    def arms(self) -> pd.DataFrame:
        """The arms, the control first, with what one of their tokens reads; see `db.frames.arms`."""
        return frames.arms(self.database, self.run_id)

    @cached_property
    def divergences(self) -> pd.DataFrame:
        """The points where arms diverge from the control, as probed after the rounds; see `db.frames.divergences`."""
        return frames.divergences(self.database, self.run_id)

    @cached_property
    def pass_times(self) -> pd.DataFrame:
        """The duration of one pass, by its width; see `db.frames.pass_times`."""
        return frames.pass_times(self.database, self.run_id)

    @cached_property
    def machine(self) -> pd.DataFrame:
        """One row: the host and its memory's bandwidth; see `db.frames.machine`."""
        return frames.machine(self.database, self.run_id)


def chooser(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an arm's sampling that decides which token is drawn: arms with equal parts draw alike.

    What else differs (ignore_eos, the chat template) shows in the lengths and prompts, which are compared themselves.
    """
    return effective({key: sampling[key] for key in ("temperature", *SHAPES_CHANCES) if key in sampling})
