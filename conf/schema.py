"""The schema of every configuration group: what may be set, its type and its default.

Hydra composes YAML against these dataclasses, so an unknown key or a value of the wrong type fails before anything
runs. They are Hydra's mutable input form; the frozen values that the rest of the program uses are in
`orchestrator.plan`.
"""

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING

from workers.sampling import Sampling
from workers.settings import DTYPE_BYTES, above, ascending, at_least, between, one_of, setting, within


class Source(Enum):
    """The source of a checkpoint's weights."""

    hub = "hub"  # a model hub's id and revision, loaded by mlx-lm
    local = "local"  # a folder in mlx-lm's layout
    gguf = "gguf"  # a GGUF file, imported through mx.load
    imported = "imported"  # a folder that `interlace checkpoint import` made, found by the checkpoint's name
    dummy = "dummy"  # random weights of a named shape; labelled so everywhere
    simulated = "simulated"  # no weights at all: for the simulated engine
    unknown = "unknown"  # what a server that runs already holds: for engines that attach to one


class Metric(Enum):
    """The metric that a comparison compares; every metric is stored whichever is named."""

    end_to_end_tps = "end_to_end_tps"
    decode_tps = "decode_tps"
    prefill_tps = "prefill_tps"
    ttft_s = "ttft_s"


class InterleaveBy(Enum):
    """The content of a round: one prompt, or the whole prompt set."""

    auto = "auto"
    prompt = "prompt"
    workload = "workload"


class Residency(Enum):
    """The rule by which the arms' models stay loaded between their trials."""

    auto = "auto"
    resident = "resident"
    swap = "swap"


class EvidencePolicy(Enum):
    """The effect of missing evidence of engagement on a trial."""

    require = "require"  # the trial is invalid
    record = "record"  # the trial counts; the audit still says what was seen


class StopRule(Enum):
    """When a comparison ends."""

    full = "full"  # after the planned rounds
    early = "early"  # as soon as it is decided, by an inference that holds at any time


class OrderRule(Enum):
    """The rule by which a round's order is drawn."""

    random = "random"  # all orders equally likely
    williams = "williams"  # in squares in which each arm follows every other equally often; arms are dealt at random


class OnFailure(Enum):
    """The effect on the run of an arm that fails its preflight."""

    stop = "stop"
    drop = "drop"


class OnTimeout(Enum):
    """The action for a trial whose gate did not open in time."""

    run = "run"  # runs, marked as a hot start
    skip = "skip"  # is stored as excluded, without a generation


class PowerNeed(Enum):
    """The power source that a trial needs."""

    mains = "mains"
    any = "any"


class HotStartRule(Enum):
    """The hot starts that are left out of the audit."""

    heat = "heat"  # those for heat or power; other load meets all arms of a round alike
    all = "all"
    none = "none"


class OrphanPolicy(Enum):
    """The effect on a run of a process that looks like an orphan but cannot be proven to be one."""

    block = "block"  # refuses it, exit code 4
    report = "report"


@dataclass
class CheckpointConfig:
    """A set of weights: their place, and the facts that are known beforehand."""

    name: str = setting(MISSING, "The option's name.")
    source: Source = setting(MISSING, "Where the weights come from.")
    hub_id: str | None = setting(None, "source=hub: owner/model at the hub.")
    revision: str | None = setting(
        None, "source=hub: a branch, tag or commit. null: what is on this machine, else the newest."
    )
    path: str | None = setting(None, "source=local or gguf: the folder or file.")
    shape: str | None = setting(None, "source=dummy: the named shape of the random weights.")
    bits: int | None = setting(None, "Bits per weight.", limit=at_least(1))
    group_size: int | None = setting(None, "Weights that share a scale.", limit=at_least(1))
    dtype: str | None = setting(None, "Type of activations and scales, as mlx names it.", limit=one_of(*DTYPE_BYTES))
    bytes_read_per_token: int | None = setting(
        None,
        "Bytes of weights that one token reads, if not all of them (mixture of experts).",
        limit=at_least(1),
    )
    draft: str | None = setting(None, "The checkpoint that drafts for this one unless engine.draft names another.")


@dataclass
class EngineConfig:
    """The settings of every engine. `_target_` names the worker class."""

    _target_: str = setting(MISSING, "The engine's class.")
    name: str = setting(MISSING, "The option's name.")
    python: str | None = setting(None, "Interpreter of another environment that runs the worker. null: this one.")
    environment: dict[str, str] = setting({}, "Variables of the worker's process, added to this one's.")


@dataclass
class WorkloadConfig:
    """The prompts of the arms: a file of prompts, a long document with two turns, or one question at several depths."""

    name: str = setting(MISSING, "The option's name.")
    kind: str = setting(
        MISSING,
        "A file of prompts, a long document with two questions, or one question after contexts of several lengths.",
        limit=one_of("prompts", "two_turns", "depths"),
    )
    file: str | None = setting(
        None,
        "kind=prompts: a file of prompts, shipped (in conf/prompts) or your own, or a folder of text files."
        " kind=depths: a text to cut; null: a generated one.",
    )
    column: str | None = setting(None, "kind=prompts: the column of a CSV file that holds the prompts.")
    first: int | None = setting(
        None, "kind=prompts: take only so many prompts, the first ones. null: all.", limit=at_least(1)
    )
    max_tokens: int = setting(MISSING, "Length of the longest answer.", limit=within(1, 1_000_000), unit="tokens")
    document_tokens: int = setting(
        33000, "kind=two_turns: approximate length of the document.", limit=within(100, 1_000_000)
    )
    depths: list[int] = setting(
        [0, 4096, 16384, 32768],
        "kind=depths: approximate lengths of the context before the question; 0: the question alone.",
        limit=ascending(0, 1_000_000, most=32),
        unit="tokens",
    )
    seed: int = setting(0, "kind=two_turns and kind=depths: seed of the document's text.", limit=at_least(0))


@dataclass
class EnvironmentConfig:
    """The packages that an arm runs with. Those named are installed; all others stay at this environment's versions."""

    name: str = setting(MISSING, "The option's name.")
    packages: list[str] = setting(
        [],
        "What pip accepts: mlx-lm==0.31.3, a wheel, a folder with a source tree, git+URL. None: this environment.",
    )
    python: str | None = setting(None, "Python version or interpreter, such as 3.12. null: this environment's.")
    newest: bool = setting(False, "Take the newest releases of the packages that the arm's engine runs.")


@dataclass
class DeadlineConfig:
    """The times after which a worker is considered stuck, in seconds."""

    load_s: float = setting(900.0, "Until the model is loaded.", limit=above(0))
    first_token_s: float = setting(900.0, "Until the first token of an answer.", limit=above(0))
    inter_token_s: float = setting(60.0, "Between two tokens.", limit=above(0))
    total_s: float = setting(3600.0, "For a whole answer.", limit=above(0))
    teardown_s: float = setting(15.0, "Until the process has ended.", limit=above(0))


@dataclass
class DesignConfig:
    """The experiment's design: how often, in which order, and what a verdict needs."""

    rounds: int | None = setting(
        None, "Rounds to run. null: 8 per prompt if a round is one prompt, else 8.", limit=within(1, 100_000)
    )
    detect: str | None = setting(
        None, "Instead of rounds: the smallest effect to be supported in 80 % of runs, such as 2%."
    )
    stop: StopRule = setting(
        StopRule.full, "When a comparison ends: after the planned rounds, or as soon as it is decided."
    )
    order: OrderRule = setting(OrderRule.random, "How the order within a round is drawn.")
    seed: int = setting(0, "Seed of the orders.", limit=at_least(0))
    metric: Metric = setting(Metric.end_to_end_tps, "The metric that is compared; all metrics are stored.")
    alpha: float = setting(0.05, "Level of the tests: the share of false alarms that is allowed.", limit=between(0, 1))
    margin: float = setting(0.02, "Effects within 1 ± margin are called no difference.", limit=at_least(0))
    aa: bool = setting(True, "Enter the control twice in every round.")
    bracket: bool = setting(True, "Run the control before the first and after the last round.")
    interleave_by: InterleaveBy = setting(InterleaveBy.auto, "Content of a round: one prompt, or the whole prompt set.")
    residency: Residency = setting(
        Residency.auto, "Keep the arms' models loaded between their trials, or load them in turn."
    )
    warmups: int = setting(
        1, "Generations per arm and prompt shape that are stored and left out.", limit=within(0, 100)
    )
    evidence: EvidencePolicy = setting(
        EvidencePolicy.require,
        "Effect of a missing sign of engagement: require makes the trial invalid, record keeps it.",
    )
    cached_share_max: float | None = setting(
        0.1,
        "Share of a conversation's first prompt that may come from a cache; more makes the trial invalid. null: any.",
        limit=within(0, 1),
    )
    on_preflight_failure: OnFailure = setting(OnFailure.stop, "Effect on the run of an arm that fails its preflight.")
    probe: bool = setting(
        True, "Ask the models after the last round: near-ties, the time of a pass, the memory's bandwidth."
    )
    probe_prompts: int = setting(3, "Answers per arm that differ from the control's and are probed.", limit=at_least(0))
    probe_budget_s: float | None = setting(
        None, "Time for all probes. null: a tenth of the trials' time, 20 s to 300 s.", limit=above(0)
    )
    deadlines: DeadlineConfig = field(default_factory=DeadlineConfig)


@dataclass
class GateConfig:
    """Conditions before a trial starts, readings while it runs, and the rules that exclude it afterwards.

    A reading that does not exist here passes, with the reason stored. null switches a condition or a rule off.
    """

    # ---- before a trial ----
    cooldown_s: float = setting(0.0, "Idle time between trials.", limit=at_least(0))
    thermal_level_max: int | None = setting(0, "Highest thermal level.", limit=within(0, 4))
    thermal_hold_s: float = setting(30.0, "No higher level within this time.", limit=at_least(0))
    timeout_s: float = setting(420.0, "Longest wait for heat and power.", limit=at_least(0))
    on_timeout: OnTimeout = setting(
        OnTimeout.run, "A trial whose gate did not open in time runs, marked as a hot start, or is skipped."
    )
    power_source: PowerNeed = setting(PowerNeed.mains, "Power source that a trial may use.")
    power_mode: str | None = setting(
        None, "The mode as the machine names it: automatic, low, high on a Mac. null: any."
    )
    cpu_cores_others_max: float | None = setting(
        0.5, "Most CPU cores that other processes use, mean over the window.", limit=at_least(0)
    )
    cpu_window_s: float = setting(5.0, "Window of that mean.", limit=at_least(0))
    gpu_ms_per_s_others_max: float | None = setting(60.0, "Most GPU time that other processes use.", limit=at_least(0))
    gpu_window_s: float = setting(3.0, "Window of that time.", limit=at_least(0))
    vm_pressure_max: int | None = setting(
        1, "macOS: highest memory pressure; 1 normal, 2 warning, 4 critical.", limit=one_of(1, 2, 4)
    )
    memory_stalled_max: float | None = setting(
        0.01, "Linux: share of the time in which some task waits for memory.", limit=within(0, 1)
    )
    swap_growth_bytes_max: float | None = setting(1e6, "Most growth of swap within cpu_window_s.", limit=at_least(0))
    busy_timeout_s: float | None = setting(
        None, "Longest wait for other load. null: timeout_s on a Mac, 5 s elsewhere.", limit=at_least(0)
    )
    busy_budget_s: float | None = setting(
        None, "Longest wait for other load in the whole run. null: an hour on a Mac, 20 s elsewhere.", limit=at_least(0)
    )
    # ---- canary: a short fixed decode before each trial, against the arm's first one ----
    canary_tokens: int = setting(0, "Length of the fixed decode. 0: none.", limit=at_least(0))
    canary_tolerance: float = setting(
        0.03, "How much slower than the arm's first one it may be, as a share.", limit=between(0, 1)
    )
    canary_interval_s: float = setting(10.0, "Between two attempts.", limit=at_least(0.1))
    # ---- wake-up: a short decode just before each trial, never measured: a GPU that idled begins slowly ----
    wake_tokens: int | None = setting(
        None, "Length of the decode. 0: none. null: 4 on a Mac, none elsewhere.", limit=at_least(0)
    )
    # ---- while a trial runs ----
    sampler: bool = setting(True, "Record the machine's readings while a trial runs.")
    sampler_interval_s: float = setting(1.0, "Between two readings.", limit=at_least(0.1))
    # ---- after it: rules that leave a trial out, never by its speed ----
    exclude_hot_start: HotStartRule = setting(
        HotStartRule.heat, "Hot starts that are excluded: those for heat or power, all, none."
    )
    exclude_clock_gap_above_s: float | None = setting(
        1.0, "Wall clock against monotonic clock: the machine slept.", limit=at_least(0)
    )
    exclude_thermal_level_above: int | None = setting(1, "Thermal level within the trial.", limit=within(0, 4))
    exclude_off_mains: bool = setting(True, "The power source left the mains, if power_source is mains.")
    exclude_cpu_cores_others_above: float | None = setting(
        None, "CPU cores that other processes used, mean over the trial.", limit=at_least(0)
    )
    exclude_gpu_ms_per_s_others_above: float | None = setting(
        None, "GPU time that other processes used.", limit=at_least(0)
    )
    exclude_swap_growth_above_bytes: float | None = setting(
        256e6, "Growth of swap within the trial.", limit=at_least(0)
    )
    replays: int = setting(
        2, "Replays of a round with an excluded trial, each whole and in a new order.", limit=at_least(0)
    )
    # ---- processes and memory ----
    orphans: OrphanPolicy = setting(
        OrphanPolicy.block, "Effect on a run of a process that may be a leftover but is not proven to be one."
    )
    orphan_interval_s: float = setting(
        60.0, "Between two looks at all processes; none falls into a trial.", limit=at_least(0)
    )
    orphan_bytes: float = setting(
        1e9, "Memory from which an abandoned process of our interpreter looks like a leftover.", limit=at_least(0)
    )
    settle_s: float = setting(5.0, "Longest wait for memory to settle between swapped arms.", limit=at_least(0))


@dataclass
class DbConfig:
    """The database for results. null: INTERLACE_DB, else the user's data folder."""

    url: str | None = setting(None, "The database. null: INTERLACE_DB, else your data folder.")


@dataclass
class SweepConfig:
    """A stored experiment: overrides common to all arms, and one override list per product of arms."""

    name: str = setting("", "The option's name.")
    description: str = setting("", "Purpose of the sweep.")
    overrides: list[str] = setting([], "Overrides common to all arms.")
    arms: list[list[str]] = setting([], "One list of overrides per product of arms.")


@dataclass
class ClaimSource:
    """The place of a published claim."""

    document: str = MISSING
    revision: str = MISSING  # version, commit, or "as published"
    date: str = MISSING


@dataclass
class ClaimConfig:
    """A published figure with its conditions, to be compared with the measured one.

    The figure is a ratio of the metric, always in one direction: to speculation, to fewer bits, to the wider block.
    """

    name: str = MISSING
    statement: str = MISSING
    factors: list[str] = field(default_factory=list)  # what differs between the sides: see the statistics of claims
    metric: Metric = Metric.end_to_end_tps
    low: float | None = None  # of the ratio; null: no lower bound was given
    high: float | None = None
    prompt_class: str | None = None  # null: over all prompts
    turn: int | None = None  # 0-based; null: all turns
    source: ClaimSource = field(default_factory=ClaimSource)
    conditions: dict[str, str] = field(default_factory=dict)


@dataclass
class RootConfig:
    """Everything that one composition yields."""

    checkpoint: CheckpointConfig = MISSING
    engine: EngineConfig = MISSING
    workload: WorkloadConfig = MISSING
    sampling: Sampling = MISSING
    environment: EnvironmentConfig = MISSING
    design: DesignConfig = MISSING
    gate: GateConfig = MISSING
    db: DbConfig = MISSING
    sweep: SweepConfig | None = None
    control: str | None = None
    experiment: str | None = None
