"""The schema of every configuration group: what may be set, its type and its default.

Hydra composes YAML against these dataclasses, so an unknown key or a value of the wrong type fails before anything
runs. They are Hydra's mutable input form; the frozen values that the rest of the program uses are in
`orchestrator.plan`.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING


class Source(Enum):
    """Where a checkpoint's weights come from."""

    hub = "hub"  # a model hub's id and revision, loaded by mlx-lm
    local = "local"  # a folder in mlx-lm's layout
    gguf = "gguf"  # a GGUF file, imported through mx.load
    imported = "imported"  # a folder that `interlace checkpoint import` made, found by the checkpoint's name
    dummy = "dummy"  # random weights of a named shape; labelled so everywhere
    simulated = "simulated"  # no weights at all: for the simulated engine


class Metric(Enum):
    """What a comparison compares; every metric is stored whichever is named."""

    end_to_end_tps = "end_to_end_tps"
    decode_tps = "decode_tps"
    prefill_tps = "prefill_tps"
    ttft_s = "ttft_s"


class InterleaveBy(Enum):
    """What a round holds: one prompt, or the whole prompt set."""

    auto = "auto"
    prompt = "prompt"
    workload = "workload"


class Residency(Enum):
    """Whether the arms' models stay loaded between their trials."""

    auto = "auto"
    resident = "resident"
    swap = "swap"


class EvidencePolicy(Enum):
    """What a missing sign of engagement does to a trial."""

    require = "require"  # the trial is invalid
    record = "record"  # the trial counts; the audit still says what was seen


class StopRule(Enum):
    """When a comparison ends."""

    full = "full"  # after the planned rounds
    early = "early"  # as soon as it is decided, by an inference that holds at any time


class OrderRule(Enum):
    """How a round's order is drawn."""

    random = "random"  # all orders equally likely
    williams = "williams"  # in squares in which each arm follows every other equally often; arms are dealt at random


class OnFailure(Enum):
    """What an arm that fails its preflight does to the run."""

    stop = "stop"
    drop = "drop"


class OnTimeout(Enum):
    """What a trial does whose gate did not open in time."""

    run = "run"  # runs, marked as a hot start
    skip = "skip"  # is stored as excluded, without a generation


class PowerNeed(Enum):
    """What a trial may draw its power from."""

    mains = "mains"
    any = "any"


class HotStartRule(Enum):
    """Which hot starts are left out of the audit."""

    heat = "heat"  # those for heat or power; other load meets all arms of a round alike
    all = "all"
    none = "none"


class OrphanPolicy(Enum):
    """What a process that looks like a leftover, and cannot be proven one, does to a run."""

    block = "block"  # refuses it, exit code 4
    report = "report"


@dataclass
class CheckpointConfig:
    """A set of weights: where they are, and what is known of them beforehand."""

    name: str = MISSING
    source: Source = MISSING
    hub_id: str | None = None
    revision: str | None = None
    path: str | None = None
    shape: str | None = None  # dummy: the named shape
    bits: int | None = None
    group_size: int | None = None
    dtype: str | None = None  # activations and scales, as mlx names it: float32, bfloat16
    bytes_read_per_token: int | None = None  # where not all weights are read (mixture of experts)
    draft: str | None = None  # the checkpoint that drafts for this one unless engine.draft names another


@dataclass
class EngineConfig:
    """What every engine has. `_target_` names the worker class."""

    _target_: str = MISSING
    name: str = MISSING
    python: str | None = None  # the interpreter of another environment that runs the worker; null: this one
    environment: dict[str, str] = field(default_factory=dict)  # of the worker's process, added to this one's


@dataclass
class MlxLmConfig(EngineConfig):
    """Plain decoding with mlx-lm: the usual control."""

    prefill_step_size: int = 2048
    max_kv_size: int | None = None
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    prefix_cache: bool = True  # reuse the processed prefix between the turns of one conversation


@dataclass
class MlxLmDraftConfig(EngineConfig):
    """mlx-lm with a draft model.

    `block_size` is the verify width, the meaning that DFlash gives it: mlx-lm's `num_draft_tokens` is one less.
    """

    draft: str | None = None  # a checkpoint's name; null takes the checkpoint's own `draft`
    block_size: int = 4
    prefill_step_size: int = 512
    prefix_cache: bool = True


@dataclass
class VerifyCostConfig(EngineConfig):
    """What checking a block costs: plain greedy decoding whose passes hold `block_size` tokens, one of them true."""

    block_size: int = 4
    prefill_step_size: int = 2048
    prefix_cache: bool = True


@dataclass
class PromptLookupConfig(EngineConfig):
    """N-gram drafting: what followed the last few tokens earlier in the conversation is proposed (mlx-dspark)."""

    block_size: int = 7  # verify width of a match: of a block, one token is the target's own
    long_block_size: int | None = 33  # where the match reaches far back, as in copied text; null: never more
    ngram_min: int = 3  # tokens that must match
    ngram_max: int = 4
    prefix_cache: bool = True


@dataclass
class MlxLmServerConfig(EngineConfig):
    """mlx_lm.server without a draft, launched on a free port or attached to."""

    attach: str | None = None  # the address of a server that runs already; null: launch one
    log_file: str | None = None  # of the server that runs already: where evidence is read
    server_python: str | None = None  # the interpreter of the server's environment; null: the worker's
    prefix_cache: bool = True
    prefill_step_size: int = 2048
    kv_bits: int | None = None
    kv_group_size: int = 64
    quantized_kv_start: int = 5000
    ready_s: float = 900.0  # until the first completion
    first_token_s: float = 600.0  # of a request; keep-alive does not extend it
    idle_s: float = 60.0  # between two tokens


@dataclass
class MlxLmServerDraftConfig(MlxLmServerConfig):
    """mlx_lm.server with a draft model. It gives no sign whether the draft ran: engagement is unknown."""

    draft: str | None = None
    block_size: int = 4


@dataclass
class DflashServerConfig(EngineConfig):
    """`dflash serve` of dflash-mlx, which needs an environment of its own: see `server_python`."""

    attach: str | None = None
    log_file: str | None = None
    server_python: str | None = None
    draft: str | None = None
    block_size: int | None = None  # null: the draft's own
    verify_mode: str = "dflash"  # adaptive shrinks blocks within a run
    draft_bits: int | None = None  # quantise the draft at load; null: as it is
    draft_group_size: int = 64
    copy_drafts: bool = True  # it copies from the context where it can; false: the draft proposes at every step
    prefix_cache: bool = True
    prefix_cache_bytes: int | None = None
    max_context: int | None = None
    fastpath_max_tokens: int = 0  # requests of up to so many tokens decode plainly
    ready_s: float = 900.0
    first_token_s: float = 600.0
    idle_s: float = 60.0


@dataclass
class OmlxConfig(EngineConfig):
    """oMLX, plain decoding, with a fresh base path and settings of its own for each arm; or attached to."""

    attach: str | None = None
    model: str | None = None  # attach: the model's name at the server
    api_key_env: str | None = None  # attach: the environment variable that holds the key; never the key
    log_file: str | None = None
    command: str = "omlx"
    prefix_cache: bool = True
    prefix_cache_bytes: int = 8 * 2**30  # in RAM
    chunked_prefill: bool = False
    burst_decode: str = "off"  # else tokens come in bursts and have no times of their own
    max_context: int | None = None
    ready_s: float = 900.0
    first_token_s: float = 600.0
    idle_s: float = 60.0


@dataclass
class OmlxDflashConfig(OmlxConfig):
    """oMLX with DFlash."""

    draft: str | None = None
    block_size: int = 8
    verify_mode: str = "dflash"
    draft_bits: int | None = None
    draft_group_size: int = 64
    dflash_max_context: int | None = None  # longer prompts run plainly


@dataclass
class OmlxMtpConfig(OmlxConfig):
    """oMLX with the model's own multi-token prediction heads."""

    depth: int = 1  # tokens drafted per step


@dataclass
class OpenaiHttpConfig(EngineConfig):
    """Any OpenAI-compatible server that runs already. Name the checkpoint that it serves."""

    url: str = "http://127.0.0.1:8080"
    model: str | None = None  # null: the only one that it serves
    api_key_env: str | None = None  # the environment variable that holds the key; never the key
    mechanism: str | None = None  # what the server was started with: dflash, mtp, draft_model, ...; null: nothing
    block_size: int | None = None  # the verify width, where known
    preset: str = "none"  # of the evidence catalogue: docs/evidence.md
    evidence: dict[str, Any] = field(default_factory=dict)  # or signs of your own, in the catalogue's form
    log_file: str | None = None
    log_command: str | None = None  # prints the server's log, such as `lms log stream`
    tokenizer: str | None = None  # the model's folder, to count tokens where the server states no usage
    body: dict[str, Any] = field(default_factory=dict)  # further keys of each request
    first_token_s: float = 600.0
    idle_s: float = 60.0


@dataclass
class DflashConfig(EngineConfig):
    """DFlash block-diffusion drafting in process, by one of the packages that run it on MLX."""

    draft: str | None = None  # a checkpoint's name; null takes the checkpoint's own `draft`
    backend: str = "mlx-dspark"
    block_size: int | None = None  # verify width; null: what the draft was trained with
    verify_mode: str = "fixed"  # adaptive: the package shrinks blocks as acceptance falls (dflash-mlx)
    draft_bits: int | None = None  # quantise the draft as it loads; null: as it is
    draft_group_size: int = 64
    prefix_cache_bytes: int | None = None  # kept between a conversation's turns (dflash-mlx); null, 0: nothing is kept
    copy_drafts: bool = False  # let the package copy from the context instead of drafting; counted apart


@dataclass
class MtpConfig(EngineConfig):
    """Multi-token prediction with the model's own heads (mtplx)."""

    depth: int = 1  # tokens proposed a step: one fewer than the verify width
    copy_drafts: bool = False  # let the package copy from the context instead of drafting; counted apart


@dataclass
class SimulatedConfig(EngineConfig):
    """No model at all: a fake clock, a drift profile and known true effects. Marked simulated everywhere."""

    effect: float = 1.0  # true speed relative to the others
    decode_tps: float = 100.0
    prefill_tps: float = 1000.0
    noise: float = 0.01  # standard deviation of the log rate
    drift: str = "none"
    drift_size: float = -0.34
    draft: str | None = None
    block_size: int = 4
    acceptance: float | None = None  # null: plain decoding
    fallback: bool = False  # requests speculation, runs plain decoding, says nothing
    silent: bool = False  # gives no sign whether it speculated
    drift_seed: int = 0
    prefix_cache: bool = True
    stop_after: int | None = None  # the answer's length; null: max_tokens
    fault: str | None = None  # a worker's fault to play: see workers.engines.simulated
    fault_at: int = 0  # the generation at which it happens


@dataclass
class WorkloadConfig:
    """What the arms are asked: a file of prompts, or a long document with two turns."""

    name: str = MISSING
    kind: str = MISSING  # prompts | two_turns
    file: str | None = None  # prompts: JSONL, shipped (in conf/prompts) or the user's own path
    max_tokens: int = MISSING
    document_tokens: int = 33000  # two_turns: approximate length of the document
    seed: int = 0  # two_turns: of the document's text


@dataclass
class SamplingConfig:
    """How the next token is chosen, and how messages become a prompt."""

    name: str = MISSING
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    ignore_eos: bool = False  # run to max_tokens whatever the model says, so that lengths are equal
    chat_template: bool = True
    template_options: dict[str, Any] = field(default_factory=dict)


@dataclass
class DeadlineConfig:
    """After how long a worker is taken for stuck, in seconds."""

    load_s: float = 900.0
    first_token_s: float = 900.0
    inter_token_s: float = 60.0
    total_s: float = 3600.0
    teardown_s: float = 15.0


@dataclass
class DesignConfig:
    """The experiment's design: how often, in which order, and what a verdict needs."""

    rounds: int | None = None  # null: 8 of every prompt (by prompt), 8 of the prompt set (by workload)
    detect: str | None = None  # instead of rounds: the smallest effect to be "supported" in 80 % of runs, as 2%
    stop: StopRule = StopRule.full
    order: OrderRule = OrderRule.random
    seed: int = 0
    metric: Metric = Metric.end_to_end_tps
    alpha: float = 0.05
    margin: float = 0.02  # effects inside +- this are called no difference
    aa: bool = True  # the control entered twice in every round
    bracket: bool = True  # control runs before the first and after the last round
    interleave_by: InterleaveBy = InterleaveBy.auto
    residency: Residency = Residency.auto
    warmups: int = 1  # generations per arm and prompt shape, stored and left out
    evidence: EvidencePolicy = EvidencePolicy.require
    # Of a conversation's first prompt, the share that may come from a cache; more makes the trial invalid. null: any.
    cached_share_max: float | None = 0.1
    on_preflight_failure: OnFailure = OnFailure.stop
    probe: bool = True  # ask the models after the last round: near-ties, the time of a pass, the memory's bandwidth
    probe_prompts: int = 3  # answers of each arm that differ from the control's and are looked into
    probe_budget_s: float | None = None  # for all probes; null: a tenth of the trials' time, 20 s to 300 s
    deadlines: DeadlineConfig = field(default_factory=DeadlineConfig)


@dataclass
class GateConfig:
    """What must hold before a trial starts, what is watched while it runs, and what then leaves it out.

    A reading that does not exist here passes, with the reason stored. null switches a condition or a rule off.
    """

    # ---- before a trial ----
    cooldown_s: float = 0.0  # idle time between trials
    thermal_level_max: int | None = 0
    thermal_hold_s: float = 30.0  # no higher level within this time
    timeout_s: float = 420.0  # for heat and power
    on_timeout: OnTimeout = OnTimeout.run
    power_source: PowerNeed = PowerNeed.mains
    power_mode: str | None = None  # as the machine names it: automatic, low, high on a Mac
    cpu_cores_others_max: float | None = 0.5  # mean over the window
    cpu_window_s: float = 5.0
    gpu_ms_per_s_others_max: float | None = 60.0
    gpu_window_s: float = 3.0
    vm_pressure_max: int | None = 1  # macOS: 1 normal, 2 warning, 4 critical
    memory_stalled_max: float | None = 0.01  # Linux: share of the time that some task waits for memory
    swap_growth_bytes_max: float | None = 1e6  # within cpu_window_s
    busy_timeout_s: float | None = None  # for other load; null: as timeout_s on a Mac, 5 s elsewhere
    busy_budget_s: float | None = None  # for other load, in the whole run; null: an hour on a Mac, 20 s elsewhere
    # ---- canary: a short fixed decode before each trial, against the arm's first one ----
    canary_tokens: int = 0  # 0: none
    canary_tolerance: float = 0.03
    canary_interval_s: float = 10.0
    # ---- wake-up: a short decode just before each trial, never measured: a GPU that idled begins slowly ----
    wake_tokens: int | None = None  # 0: none; null: 4 on a Mac, none elsewhere
    # ---- while a trial runs ----
    sampler: bool = True
    sampler_interval_s: float = 1.0
    # ---- after it: rules that leave a trial out, never by its speed ----
    exclude_hot_start: HotStartRule = HotStartRule.heat
    exclude_clock_gap_above_s: float | None = 1.0  # wall clock against monotonic: the machine slept
    exclude_thermal_level_above: int | None = 1
    exclude_off_mains: bool = True  # where power_source is mains
    exclude_cpu_cores_others_above: float | None = None  # mean
    exclude_gpu_ms_per_s_others_above: float | None = None
    exclude_swap_growth_above_bytes: float | None = 256e6
    replays: int = 2  # of a round with an excluded trial, each whole and in an order of its own
    # ---- processes and memory ----
    orphans: OrphanPolicy = OrphanPolicy.block
    orphan_interval_s: float = 60.0  # between two looks at all processes; none falls into a trial
    orphan_bytes: float = 1e9  # from which an abandoned process of our interpreter looks like a leftover
    settle_s: float = 5.0  # at most, for memory to settle between swapped arms


@dataclass
class DbConfig:
    """Where results go. null: INTERLACE_DB, else the user's data folder."""

    url: str | None = None


@dataclass
class SweepConfig:
    """A stored experiment: overrides common to all arms, and one override list per product of arms."""

    name: str = ""
    description: str = ""
    overrides: list[str] = field(default_factory=list)
    arms: list[list[str]] = field(default_factory=list)


@dataclass
class ClaimSource:
    """Where a claim stands."""

    document: str = MISSING
    revision: str = MISSING  # version, commit, or "as published"
    date: str = MISSING


@dataclass
class ClaimConfig:
    """A figure that somebody published, with its conditions, to be set beside what was measured.

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
    sampling: SamplingConfig = MISSING
    design: DesignConfig = MISSING
    gate: GateConfig = MISSING
    db: DbConfig = MISSING
    sweep: SweepConfig | None = None
    control: str | None = None
    experiment: str | None = None
