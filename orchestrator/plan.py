"""The plan: what will run, as frozen values. Composed once, hashed, stored before the first trial.

A plan holds everything that a run needs: the arms' resolved configuration, the prompts themselves, the design and the
seed. Editing YAML or a prompt file later changes nothing. The order of the trials is not stored in the plan: it is a
pure function of it (`orchestrator.schedule`).
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from db.json_guard import read_json
from orchestrator.typed import build
from orchestrator.vocabulary import METRICS

PLAN_VERSION = 1
MOST_PLAN_CHARACTERS = 64_000_000  # prompts included
MOST_ROUNDS = 1_000_000
# Of the generated document (`orchestrator.configuration.long_document`) with SmolLM2's tokenizer; other
# tokenizers of its kind lie within some 15 per cent.
CHARACTERS_PER_TOKEN = 3.3
_CHOICES = {
    "metric": METRICS,
    "interleave_by": ("prompt", "workload"),
    "residency": ("resident", "swap"),
    "evidence": ("require", "record"),
    "on_preflight_failure": ("stop", "drop"),
    "stop": ("full", "early"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A named full configuration: checkpoint x engine x engine settings x sampling. Plain JSON values inside."""

    name: str  # unique within the plan, short, made of what differs between the arms
    checkpoint: dict[str, Any]  # conf.schema.CheckpointConfig, resolved
    engine: dict[str, Any]  # conf.schema.EngineConfig or one of its kinds, with `_target_`, resolved
    sampling: dict[str, Any]
    draft: dict[str, Any] | None  # the drafting checkpoint's configuration
    environment: dict[str, Any] | None = None  # conf.schema.EnvironmentConfig; None: the one that interlace runs in

    @property
    def config_sha256(self) -> str:
        """Hash of the resolved configuration, its name left out.

        Of an environment it holds what was asked for, not its lock: arms of one question are one series over time.
        """
        parts = {"checkpoint": self.checkpoint, "engine": self.engine, "sampling": self.sampling, "draft": self.draft}
        if self.environment is not None:
            parts["environment"] = {key: value for key, value in self.environment.items() if key != "name"}
        return sha256_of(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One package of a locked environment. What comes from the index is named by its file, never by an address."""

    name: str  # normalised
    version: str | None  # None: known when the source tree or repository is built
    file: str | None = None  # the file's name on the index
    sha256: str | None = None  # of the file, or of a source tree's content; None: a repository, named by its commit
    tag: str | None = None  # of the wheel, such as py3-none-any; None: built from source here
    source: str | None = None  # the path of a wheel or a source tree, or git+URL@COMMIT; None: the index
    named: bool = False  # the environment names it, so that its version is what an arm declares


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Everything that an environment holds, exactly: it can be built again from this alone."""

    environment: str  # its name, as the arms have it
    python: str  # the version in full
    interpreter: str | None = None  # the one that was asked for; None: this environment's
    packages: tuple[LockedPackage, ...]
    moved: tuple[str, ...] = ()  # packages that nobody named and that had to move: "numpy 2.4.6 -> 2.3.1"

    @property
    def sha256(self) -> str:
        """Identity of what is installed, whatever the environment is called."""
        packages = [replace(package, named=False) for package in self.packages]
        return sha256_of([self.python, self.interpreter, [asdict(package) for package in packages]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One conversation to hold: one turn or several."""

    id: str  # unique within the plan: workload/index or the file's own id
    workload: str
    prompt_class: str
    turns: tuple[tuple[dict[str, str], ...], ...]  # OpenAI messages added before each answer
    max_tokens: int

    @property
    def sha256(self) -> str:
        return sha256_of({"turns": self.turns, "max_tokens": self.max_tokens})

    @property
    def context_tokens(self) -> int:
        """About how many tokens the conversation takes to its end."""
        characters = sum(len(message["content"]) for turn in self.turns for message in turn)
        return round(characters / CHARACTERS_PER_TOKEN) + len(self.turns) * self.max_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """See conf.schema.DeadlineConfig."""

    load_s: float = 900.0
    first_token_s: float = 900.0
    inter_token_s: float = 60.0
    total_s: float = 3600.0
    teardown_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """See conf.schema.DesignConfig; here every choice is made: no `auto`, no null rounds."""

    rounds: int
    seed: int
    metric: str
    alpha: float
    margin: float
    aa: bool
    bracket: bool
    interleave_by: str  # prompt | workload
    residency: str  # resident | swap
    warmups: int
    evidence: str  # require | record
    on_preflight_failure: str  # stop | drop
    stop: str = "full"  # full | early
    order: str = "random"  # random | williams
    cached_share_max: float | None = None  # None: any, as in plans from before there was this rule
    probe: bool = False  # as in plans from before there were probes
    probe_prompts: int = 3
    probe_budget_s: float | None = None  # None: from the trials' time
    deadlines: Deadlines = field(default_factory=Deadlines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """See conf.schema.GateConfig; None switches a condition or a rule off."""

    cooldown_s: float = 0.0
    thermal_level_max: int | None = 0
    thermal_hold_s: float = 30.0
    timeout_s: float = 420.0
    on_timeout: str = "run"  # run | skip
    power_source: str = "mains"  # mains | any
    power_mode: str | None = None
    cpu_cores_others_max: float | None = 0.5
    cpu_window_s: float = 5.0
    gpu_ms_per_s_others_max: float | None = 60.0
    gpu_window_s: float = 3.0
    vm_pressure_max: int | None = 1
    memory_stalled_max: float | None = 0.01
    swap_growth_bytes_max: float | None = 1e6
    busy_timeout_s: float | None = None
    busy_budget_s: float | None = None
    canary_tokens: int = 0
    canary_tolerance: float = 0.03
    canary_interval_s: float = 10.0
    wake_tokens: int | None = None
    sampler: bool = True
    sampler_interval_s: float = 1.0
    exclude_hot_start: str = "heat"  # heat | all | none
    exclude_clock_gap_above_s: float | None = 1.0
    exclude_thermal_level_above: int | None = 1
    exclude_off_mains: bool = True
    exclude_cpu_cores_others_above: float | None = None
    exclude_gpu_ms_per_s_others_above: float | None = None
    exclude_swap_growth_above_bytes: float | None = 256e6
    replays: int = 2
    orphans: str = "block"  # block | report
    orphan_interval_s: float = 60.0
    orphan_bytes: float = 1e9
    settle_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run before it runs."""

    version: int = PLAN_VERSION
    interlace_version: str
    experiment: str
    command: tuple[str, ...]  # the options and overrides of `interlace run` as given, for the record
    arms: tuple[Arm, ...]
    control: str  # an arm's name
    prompts: tuple[Prompt, ...]
    design: Design
    gate: Gate
    locks: tuple[Lock, ...] = ()  # one per environment that the arms name; none yet where it was not resolved
    notes: tuple[str, ...] = ()  # what composing decided for the user: merged arms, settings that did not apply

    @property
    def sha256(self) -> str:
        return sha256_of(asdict(self))

    def lock_of(self, arm: Arm) -> Lock | None:
        """The lock of the arm's environment. None: it runs in this one, or its environment is not resolved yet."""
        name = None if arm.environment is None else arm.environment["name"]
        return next((lock for lock in self.locks if lock.environment == name), None)

    @property
    def workload_sha256(self) -> str:
        """Identity of the prompt set."""
        return sha256_of([prompt.sha256 for prompt in self.prompts])


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_of(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def dump(plan: Plan) -> str:
    """The plan as stored."""
    return canonical_json(asdict(plan))


def load(text: str) -> Plan:
    """Read the plan that `dump` wrote, and check the types of its fields: anybody may have written the text.

    Raises:
        ValueError: of another version, or not a plan; the message says where.
    """
    body = read_json(text, most_characters=MOST_PLAN_CHARACTERS)
    if not isinstance(body, dict):
        raise ValueError("plan is not an object")
    if body.get("version") != PLAN_VERSION:
        raise ValueError(f"plan version {body.get('version')!r}; this interlace reads version {PLAN_VERSION}")
    plan = build(Plan, body, where="plan")
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    """Check what types cannot express.

    Raises:
        ValueError: see `load`.
    """
    names = [arm.name for arm in plan.arms]
    if len(set(names)) != len(names) or plan.control not in names:
        raise ValueError("plan.arms does not hold the control, or holds one name twice")
    ids = [prompt.id for prompt in plan.prompts]
    if len(set(ids)) != len(ids):
        raise ValueError("plan.prompts holds one id twice")
    for arm in plan.arms:
        _check_arm(arm)
    for lock in plan.locks:
        _check_lock(lock)
    for name, known in _CHOICES.items():
        if getattr(plan.design, name) not in known:
            raise ValueError(f"plan.design.{name} is not one of {', '.join(known)}")
    if not 0 < plan.design.alpha < 1 or plan.design.margin < 0:
        raise ValueError("plan.design.alpha or plan.design.margin is out of range")
    for what, number, most in (
        ("design.rounds", plan.design.rounds, MOST_ROUNDS),
        ("design.warmups", plan.design.warmups, MOST_ROUNDS),
        ("gate.replays", plan.gate.replays, MOST_ROUNDS),
    ):
        if not 0 <= number <= most:
            raise ValueError(f"plan.{what} is {number}, it may be 0 to {most}")


def _check_arm(arm: Arm) -> None:
    where = f"arm {arm.name!r}"
    for part, keys in ((arm.engine, ("_target_", "name")), (arm.checkpoint, ("name", "source")), (arm.sampling, ())):
        for key in keys:
            if not isinstance(part.get(key), str):
                raise ValueError(f"plan: {where} lacks the {key} of its engine or checkpoint")
    if arm.draft is not None and not isinstance(arm.draft.get("name"), str):
        raise ValueError(f"plan: {where} has a draft without a name")
    temperature = arm.sampling.get("temperature")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        raise ValueError(f"plan: {where} has a temperature that is not a number")
    if not isinstance(arm.engine.get("environment") or {}, dict):
        raise ValueError(f"plan: {where} has an environment that is not an object")
    _check_environment(arm.environment, where)


_LOCKED = {
    "name": re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"),
    "version": re.compile(r"[A-Za-z0-9.!+_-]+"),
    "file": re.compile(r"[A-Za-z0-9.!+_-]+"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "tag": re.compile(r"[A-Za-z0-9._-]+"),
    # A path, which is quoted where it is used; or an address.
    "source": re.compile(r"/[^\x00-\x1f\x7f]*|((git|hg|svn|bzr)\+[a-z0-9+.-]+:|https?://)[^\s;#$]*(#[^\s;$]*)?"),
}


def _check_lock(lock: Lock) -> None:
    """Its texts become lines of a file for uv or pip: none of them may be more than it says."""
    where = f"plan: lock of environment {lock.environment!r}"
    if not re.fullmatch(r"3\.\d+\.\d+[a-z0-9+]*", lock.python):
        raise ValueError(f"{where} has a python that is not a version")
    for package in lock.packages:
        for name, form in _LOCKED.items():
            value = getattr(package, name)
            if value is not None and not form.fullmatch(value):
                raise ValueError(f"{where}: the {name} of a package is not valid")
        if package.source is None and (package.version is None or package.sha256 is None):
            raise ValueError(f"{where}: {package.name} has neither a source nor a version with its hash")


def _check_environment(environment: dict[str, Any] | None, where: str) -> None:
    if environment is None:
        return
    packages = environment.get("packages")
    if not isinstance(environment.get("name"), str):
        raise ValueError(f"plan: {where} has an environment without a name")
    if not (isinstance(packages, list) and all(isinstance(each, str) for each in packages)):
        raise ValueError(f"plan: {where} has an environment whose packages are not a list of texts")
    if not isinstance(environment.get("python"), str | None):
        raise ValueError(f"plan: {where} has an environment whose python is not text")
