"""Judgements from stored rows: reads the input of the pure statistics, and stores their results."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pandas as pd

from db.engine import Database
from db.errors import DatabaseError
from db.frames import runs
from db.history import (
    SERIES,
    VERSIONS,
    arm_history,
    generations_over_time,
    other_evenings,
    runs_with_exclusions,
)
from db.session import open_existing
from orchestrator.audit import METHOD_VERSION, AuditResult, Inference, audit
from orchestrator.errors import RefusedError
from orchestrator.plan import LockedPackage, Plan
from orchestrator.planning.hosts import own_host_ids
from orchestrator.revising import revisions
from orchestrator.schedule import rounds_together
from orchestrator.statistics.claims import ArmFacts
from orchestrator.statistics.comparability import PYTHON, Scope
from orchestrator.statistics.compare import RunSide
from orchestrator.statistics.drift import Setting
from orchestrator.statistics.drift_audit import audit_by_drift
from orchestrator.statistics.evenings import Evenings, between_evenings, by_pair
from orchestrator.statistics.factorial import Factorial, factorial
from orchestrator.statistics.factors import Table, two_factors
from orchestrator.statistics.history import Point, Series, change_points
from orchestrator.statistics.observations import Usable, measured_rows
from orchestrator.statistics.power import observed_setting
from orchestrator.statistics.unrandomised import DriftExplanation, explain_by_drift
from orchestrator.stored_run import StoredRun
from orchestrator.storing import save_audit
from orchestrator.vocabulary import VERDICTS
from workers.machine.host import HostFacts

SHORT_HASH = 6  # of a configuration, as shown to people
LEAST_TRIALS = 12  # needed to read noise and drift from a run
# Facts that may differ between two runs; differences are reported.
FACTS = ("host", "chip", "os_build", "python", "mlx_version", "mlx_lm_version", "engine_version", "power_source")


def judge(frame: pd.DataFrame, plan: Plan, *, metric: str | None = None) -> AuditResult:
    """Audit a run's rows by its own plan. One that was not randomised is judged by the drift that would explain it.

    Args:
        frame: `StoredRun.trials`.
        metric: the metric to judge by; by default the plan's.

    Raises:
        ValueError: a column is missing.
    """
    design = plan.design
    audited = partial(audit_by_drift, method_version=METHOD_VERSION)
    if was_randomised(frame):
        audited = partial(
            audit,
            inference=inference_of(plan),
            arms=[arm.name for arm in plan.arms],
            together=rounds_together(plan),
            declared=declared_packages(plan),
        )
    return audited(
        frame,
        control=plan.control,
        metric=metric or design.metric,
        alpha=design.alpha,
        margin=design.margin,
        seed=design.seed,
    )


def declared_packages(plan: Plan) -> dict[str, dict[str, str | None]]:
    """Return the content of the arms' environments by arm: packages with locked versions, and Python if it was chosen.

    What is built from source has the hash of its content or its commit in place of a version: two trees of one version
    are two things.
    """
    found = {}
    for arm in plan.arms:
        if (lock := plan.lock_of(arm)) is not None:
            found[arm.name] = {each.name: _identity(each) for each in lock.packages if each.named}
            found[arm.name] |= {} if lock.interpreter is None else {PYTHON: lock.python}
    return found


def _identity(package: LockedPackage) -> str | None:
    return package.version if package.source is None else package.sha256 or package.source


def was_randomised(frame: pd.DataFrame) -> bool:
    """Return whether a run's orders were drawn at random: those of other tools were not."""
    return bool(frame["randomised"].fillna(value=True).all())


def inference_of(plan: Plan) -> Inference:
    """Return the kind of inference that is valid for a run of this plan."""
    return "anytime" if plan.design.stop == "early" else "fixed"


def decisions(frame: pd.DataFrame, plan: Plan) -> dict[str, str]:
    """The treatments whose comparison over all prompts is decided, and how: by the inference that the audit uses.

    If a round holds one prompt, only whole passes over the prompts count.
    """
    if plan.design.stop != "early" or frame[frame["kind"] == "measured"].empty:
        return {}
    seen = _whole_passes(frame, plan)
    if seen[seen["kind"] == "measured"].empty:
        return {}
    return {
        one.treatment: one.verdict.replace("_", " ")
        for one in judge(seen, plan).comparisons
        if one.over_all and one.verdict in ("supported", "no_difference")
    }


def _whole_passes(frame: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    if plan.design.interleave_by != "prompt":
        return frame
    prompts = len(plan.prompts)
    newest = frame.loc[frame["kind"] == "measured", "round"].max()
    ended = (int(newest) + 1) // prompts * prompts
    return frame[(frame["round"] < ended).fillna(value=True).astype(bool)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run's judgement: each arm against the control, and how two factors compose if there are two."""

    result: AuditResult
    composition: tuple[Table, Factorial] | None
    revisions: tuple[str, ...] = ()  # a sentence per comparison that an earlier method decided otherwise


def judgement(run: StoredRun) -> Judged:
    """Audit a run by its own plan; nothing is stored."""
    result = judge(run.trials, run.plan)
    return Judged(result=result, composition=composition(run), revisions=revisions(run.database, run.run_id, result))


def judge_run(run: StoredRun) -> Judged:
    """Audit a run and store the judgement beside it."""
    judged = judgement(run)
    compositions = None
    if judged.composition is not None:
        table, found = judged.composition
        compositions = asdict(table) | asdict(found)
    save_audit(run.database, run.plan, run.run_id, judged.result, compositions=compositions)
    return judged


def host_noise(url: str, *, host: HostFacts) -> Setting | None:
    """Return noise and drift of this host's newest finished run of real models, or None without such a run."""
    try:
        database = open_existing(url)
        found = runs(database)
    except DatabaseError:
        return None  # no database yet, or one that `run` will refuse with its reason
    here = found["host_id"].isin(own_host_ids(database, host))
    own = found[here & (found["status"] == "done") & ~found["simulated"].astype(bool)]
    for run_id, metric in own[["run_id", "metric"]].itertuples(index=False):
        try:
            trials = StoredRun.load(database, run_id).trials
        except RefusedError:
            continue  # planned by another version
        used = Usable.read(measured_rows(trials, metric)).trials(Scope())
        if len(used.y) >= LEAST_TRIALS:
            return observed_setting(used)
    return None


def composition(run: StoredRun) -> tuple[Table, Factorial] | None:
    """Main effects and compositions, when the arms are a full table of two factors that were all measured."""
    frame, plan = run.trials, run.plan
    table = two_factors(plan.arms, control=plan.control) if was_randomised(frame) else None
    if table is None:
        return None
    used = Usable.read(measured_rows(frame, plan.design.metric)).trials(Scope())
    try:
        found = factorial(used, levels=table.levels, base=table.base, alpha=plan.design.alpha, seed=plan.design.seed)
    except ValueError:
        return None  # an arm was left out, or no round is complete: there is no table
    return table, found


def judged_history(
    database: Database, *, metric: str, filters: Mapping[str, str | None], simulated: bool = False
) -> pd.DataFrame:
    """`db.history.arm_history` of the generations that the runs' audits use."""
    found = generations_over_time(database, metric=metric, filters=filters, simulated=simulated)
    doubtful = runs_with_exclusions(database) & set(found["run_id"])
    dropped = [trial for run_id in sorted(doubtful) for trial in _dropped_trials(database, run_id, metric)]
    return arm_history(found[~found["trial_id"].isin(dropped)])


def _dropped_trials(database: Database, run_id: str, metric: str) -> list[str]:
    """Finished trials that the audit does not use, because a rule left another trial of their round out."""
    try:
        rows = StoredRun.load(database, run_id).trials
    except RefusedError:
        return []  # planned by another version: its audit is not known here
    if not was_randomised(rows):
        return []
    measured = measured_rows(rows, metric)
    return [str(trial) for trial in measured.loc[~measured["usable"], "trial_id"].unique()]


def series_of(rows: pd.DataFrame) -> tuple[Series, ...]:
    """Return each configuration of `judged_history` over time, with the changes of its level."""
    return tuple(_series(own) for _, own in rows.groupby(list(SERIES), sort=False))


def _series(rows: pd.DataFrame) -> Series:
    points = tuple(point_of(row) for row in rows.to_dict("records"))
    newest = rows.iloc[-1]
    name = f"{newest['arm']} [{newest['config_sha256'][:SHORT_HASH]}] on {newest['host']}"
    return Series(name=name, arm=str(newest["arm"]), points=points, changes=change_points(points))


def point_of(row: Mapping[Any, Any]) -> Point:
    """One run of a configuration, from a row of `judged_history`."""
    versions = {name: row[name] for name in VERSIONS if isinstance(row[name], str)}
    if versions.get("engine_version") == versions.get("mlx_lm_version"):
        versions.pop("engine_version", None)  # one thing under two names would look like two causes
    environment = row["environment"]
    return Point(
        run_id=row["run_id"],
        at=row["created_at"].to_pydatetime(),
        value=row["value"],
        versions=versions,
        packages=_packages(row["packages"]),
        environment=environment if isinstance(environment, str) else None,
    )


def _packages(text: Any) -> dict[str, str]:
    """Return the recorded distributions that are installed; not the code that measures, nor the build of a wheel."""
    found = json.loads(text) if isinstance(text, str) else {}
    return {
        name: version
        for name, version in found.items()
        if isinstance(version, str) and " " not in name and name != "interlace"
    }


def explanations(rows: pd.DataFrame) -> tuple[DriftExplanation, ...]:
    """Return `explanations_within` of each workload on each host, of rows of `judged_history`."""
    groups = rows.groupby(["workload_sha256", "host"], sort=False)
    return tuple(one for _, together in groups for one in explanations_within(together))


def explanations_within(points: pd.DataFrame) -> tuple[DriftExplanation, ...]:
    """Compute the drift that would explain the differences of configurations never measured in one run.

    The control is the configuration that ran most often, of these the earliest: one that restored its settings at the
    end shows how the machine drifted. Arms that shared a run with it are left out: their audit is the better answer.

    Args:
        points: rows of `judged_history` of one workload on one host.
    """
    runs_of = points.groupby("config_sha256", sort=False)["run_id"].agg(set)
    counts = runs_of.map(len)
    control = str(counts.index[counts == counts.max()][0])
    apart = [key for key, runs in runs_of.items() if key == control or not runs & runs_of[control]]
    chosen = points[points["config_sha256"].isin(apart)]
    if len(apart) < 2:
        return ()
    names = chosen.groupby("config_sha256")["arm"].last()
    names += " [" + names.index.str[:SHORT_HASH] + "]"  # arms of different runs may share a name
    sequence = pd.DataFrame(
        {
            "arm": chosen["config_sha256"].map(names),
            "started_at": chosen["created_at"],
            "value": chosen["value"],
        }
    )
    return explain_by_drift(sequence, control=str(names[control]))


def run_side(run: StoredRun) -> RunSide:
    """Return the part of a run that a comparison with another run needs."""
    frame = run.trials
    digests = frame.dropna(subset=["checkpoint_digest"]).groupby("arm")["checkpoint_digest"].first()
    return RunSide(
        run_id=run.run_id,
        plan=run.plan,
        comparisons=judge(frame, run.plan).comparisons,
        checkpoints={str(arm): str(digest) for arm, digest in digests.items()},
        facts=run_facts(frame),
    )


def evenings_of(database: Database, run_id: str, *, without: str) -> Evenings | None:
    """Return the spread of effects between this host's other runs of these prompts, or None with too few runs."""
    found = other_evenings(database, run_id, without=without)
    return between_evenings(by_pair((one.pair, one.ratio) for one in found if VERDICTS[one.verdict].usable))


def run_facts(frame: pd.DataFrame) -> dict[str, str]:
    """Return the facts that a whole run shares; several values are joined."""
    found = {}
    for name in FACTS:
        values = frame[name].dropna().astype(str).drop_duplicates()
        if len(values):
            found[name] = ", ".join(values)
    return found


def arm_facts(frame: pd.DataFrame) -> dict[str, ArmFacts]:
    """Read the arms' facts from rows of every kind: a run may have ended before its first round."""
    return {str(arm): _facts(rows) for arm, rows in frame.groupby("arm", sort=False)}


def _facts(rows: pd.DataFrame) -> ArmFacts:
    first = rows.iloc[0]
    return ArmFacts(
        engine=str(first["engine"]),
        speculates=bool(rows["requested"].fillna(value=False).any()),
        bits=_integer(first["bits"]),
        block_size=_integer(first["block_size"]),
        draft=None if pd.isna(first["draft"]) else str(first["draft"]),
        checkpoint=str(first["checkpoint"]),
        temperature=None if pd.isna(first["temperature"]) else float(first["temperature"]),
    )


def _integer(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def conditions(frame: pd.DataFrame, plan: Plan) -> dict[str, str]:
    """The conditions that a claim may name and a whole run shares."""
    facts = run_facts(frame)
    return {
        "hardware": facts.get("chip", "unknown"),
        "mlx_version": facts.get("mlx_version", "unknown"),
        "workload": ", ".join(dict.fromkeys(prompt.workload for prompt in plan.prompts)),
        "max_tokens": ", ".join(dict.fromkeys(str(prompt.max_tokens) for prompt in plan.prompts)),
        "concurrency": "1",
    }
