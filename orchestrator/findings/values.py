"""The findings of a run besides the comparison of speeds: values only. docs/meaning.md has each figure's formula.

A figure that may be unknown is a `Figure`: its value and its source, or None and the reason. A `prompt_class` of None
means all classes. Turns count from 0. Ratios are of an arm over the arm that it is compared with.
"""

from dataclasses import dataclass, field
from typing import Literal

ComparedBy = Literal["token_ids", "text"]
Outcome = Literal["identical", "differs", "unknown"]
ProbeVerdict = Literal["near_tie", "real", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number and its source, or no number and the reason."""

    value: float | None
    source: str  # if the value is None: why it is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio from `orchestrator.effects`: complete rounds only, bounds None where too few rounds leave them open."""

    ratio: float
    ci_low: float | None
    ci_high: float | None
    p_value: float
    rounds: int


# ---- losslessness ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TopToken:
    """One of the control's most likely tokens at a divergence."""

    token: int
    text: str
    log_probability: float  # nats


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDivergence:
    """The place where two answers diverge. A token of None: that answer ends there. A text of None: unknown.

    The lower half is the probe's, from the table `divergence`; without one `verdict` is unknown and `reason` says why.
    """

    token_index: int | None  # 0-based; None: the answers are known by their bytes only
    character_index: int | None  # of the text, if both texts are known
    control_token: int | None
    arm_token: int | None
    control_text: str | None  # of the token alone; if compared by text: the text that follows
    arm_text: str | None
    context_text: str | None  # the common text just before
    top: tuple[TopToken, ...]  # the control's checkpoint at this place, most likely first
    gap: float | None  # log-probability of the first over that of the second, nats
    rounding: float | None  # largest change of a top logit between passes of different widths, nats
    verdict: ProbeVerdict
    reason: str  # of the verdict, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOutcome:
    """One arm's answers to one turn of a prompt, compared with another arm's."""

    arm: str
    prompt_id: str
    workload: str
    prompt_class: str
    turn: int
    outcome: Outcome
    reason: str | None  # why it is unknown; else None
    compared_by: ComparedBy | None  # None if nothing was compared
    answers: int  # number of the arm's answers
    deterministic: bool | None  # whether they are all equal; None: fewer than two
    other_deterministic: bool | None  # the same for the other arm's answers
    divergence: FirstDivergence | None  # the place, if it differs


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLosslessness:
    """One arm's answers compared with another's, counted over prompts and turns."""

    arm: str
    against: str  # the control; also the plain arm of the same weights, if the control has others
    same_weights: bool | None  # as that arm; None: unknown
    identical: int
    differs: int
    unknown: int
    deterministic: bool | None  # whether equal in every prompt with several answers; None: no prompt has several
    near_ties: int  # among those that differ, by the probe
    real: int
    earliest: int | None  # token index of the earliest divergence
    outcomes: tuple[PromptOutcome, ...]
    note: str | None  # why this arm is not compared: its sampler, another control
    too_early: str | None = None  # a remark if it diverges earlier than an arm of the same width: more than rounding

    @property
    def prompts(self) -> int:
        return self.identical + self.differs + self.unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Losslessness:
    """The arms' answers compared with the control's, and the control's with each other (is it deterministic?)."""

    control: str
    arms: tuple[ArmLosslessness, ...]  # the control compared with itself first


# ---- depth of the context ----


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanInterval:
    """A mean over rounds with its t interval; bounds None: too few rounds."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthPoint:
    """One arm at one depth."""

    depth: int  # tokens, as the workload names it
    generations: int
    prompt_tokens: float | None  # median
    cached_tokens: float | None  # median; None: the engine does not report them
    ttft_s: MeanInterval | None
    prefill_tps: MeanInterval | None
    decode_tps: MeanInterval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The depth at which an arm and the control change places, in tokens."""

    at_tokens: float | None  # None: the lines do not fit; it lies between the two measured depths `low` and `high`
    low: float
    high: float
    pays_first: bool  # the arm is faster at smaller depths


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthCurve:
    """One arm's cost by depth: time per token = a + b x depth."""

    arm: str
    workload: str
    points: tuple[DepthPoint, ...]  # by depth
    passes: int  # rounds that each depth has
    a_ms: MeanInterval | None  # None: too few passes
    b_us: MeanInterval | None  # per 1,000 tokens
    residual: float | None  # largest distance of a depth from the line, relative to the mean time; None: two depths
    crossing: Crossing | None  # with the control; None: none within the depths is certain


# ---- cost of verification ----


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyCost:
    """The cost and the yield of a speculative arm's verify round, in one prompt class or all.

    Costs are in units of one plain decoding step of the same checkpoint in the same run: plain is 1.
    """

    arm: str
    prompt_class: str | None
    width: int | None  # verify width: tokens checked by one pass; the engines' block_size
    rounds_timed: int  # verify rounds behind step_s, the first pass of each answer left out
    accept_length: float | None  # tokens committed per timed round, bonus token included
    proposing: float | None  # share of the timed rounds that proposed anything; the others are plain steps
    acceptance_by_position: tuple[float, ...]  # chance that 1..i are all accepted, of rounds with i proposals
    step_s: float | None  # median time of a verify round
    plain_arm: str | None
    plain_s: Figure  # median time of a plain step
    round_cost: Figure  # step_s / plain_s
    verify_cost: Figure  # T(width) / T(1)
    draft_cost: Figure  # the drafter's share: from its passes, or the rest of round_cost after the verification
    predicted: Figure  # speed-up over plain decoding: accept_length / (verify_cost + draft_cost), or / round_cost
    independent: bool  # predicted comes from passes timed separately, so that measured can refute it
    measured: Interval | None  # decode_tps of the arm over the plain arm
    one_more: Figure  # speed-up if each proposing round committed one more token
    doubt: str | None  # a remark if verify_cost and draft_cost do not fit the rounds' times


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthPoint:
    """One verify width of a curve."""

    width: int
    accept_length: float  # expected over all rounds, those without a proposal included
    verify_cost: float | None  # None if only the cost of the whole round is known
    draft_cost: float | None
    round_cost: float
    predicted: float  # accept_length / round_cost
    interpolated: bool  # the cost lies between measured widths
    arm: str | None  # the arm that ran this width
    measured_accept_length: float | None
    measured: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthCurve:
    """Speed-up by verify width for arms that differ only in it, in one prompt class or all."""

    arms: str  # the common words of their names
    engine: str
    checkpoint: str
    draft: str | None
    prompt_class: str | None
    points: tuple[WidthPoint, ...]  # by width, plain decoding (width 1) first
    best: Figure  # the width with the largest predicted speed-up
    at_edge: bool  # the best is the widest that was judged: a wider one may be better
    best_measured: int | None  # of the widths that ran, by the measured ratio
    source: str  # of the costs
    refused: str | None = None  # why no width is predicted: an arm contradicts the replay; points hold what ran


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCurve:
    """The time of one pass of a checkpoint by the number of tokens in it, relative to a pass of one."""

    checkpoint: str
    role: Literal["target", "draft"]
    seconds: tuple[tuple[int, float], ...]  # (width, median seconds), by width
    cost: tuple[tuple[int, float], ...]  # (width, T(width) / T(1)); empty if a pass of one was not timed
    source: str


# ---- ceiling ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The rate at which an arm could decode if it only read the bytes that it must: bandwidth over bytes."""

    arm: str
    speculates: bool
    weights_bytes: Figure  # read by a pass of one token; of a mixture of experts, the active ones
    draft_bytes: Figure  # read by the drafter for one verify round, weights and cache; 0 for plain decoding
    kv_bytes: Figure  # of the cache at this run's mean context
    context_tokens: float | None  # the mean context: prompt and half of the answer
    bytes_per_pass: Figure  # the sum: for one token (plain) or one verify round
    bandwidth_bytes_per_s: Figure
    ceiling_passes_per_s: Figure
    ceiling_tps: Figure  # passes x accept length
    measured_passes_per_s: float | None
    measured_tps: float | None  # median decode rate
    share: Figure  # the share of the ceiling that was reached, in passes
    note: str | None  # such as: above the ceiling


# ---- turns ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """Medians of one turn of the conversations with several turns, in one arm."""

    turn: int
    generations: int
    ttft_s: float | None
    prompt_tokens: float | None
    cached_tokens: Figure  # unknown is not 0
    new_tokens: Figure  # prompt - cached: what had to be processed
    prefill_tps: Figure  # of the new tokens only
    ttft_ratio: Interval | None  # over the control arm's in the same turn; None for the control
    verdict: str | None  # the verdict on that ratio, as an audit of ttft_s gives it


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTurns:
    """An arm in one workload's conversations of several turns."""

    arm: str
    workload: str
    turns: tuple[TurnFigures, ...]
    flags: tuple[str, ...]  # codes: cached_zero_but_fast, cached_but_slow, prefix_lost, cached_unknown
    remarks: tuple[str, ...]  # the same as sentences with numbers


# ---- sampling ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperaturePoint:
    """The acceptance of a speculative arm at its temperature."""

    arm: str
    engine: str
    checkpoint: str
    width: int | None
    temperature: float | None
    accept_length: float | None
    acceptance_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samplers:
    """The samplers of the run's arms, and a note on comparing them."""

    note: str | None  # None: all arms have the same sampler
    by_temperature: tuple[TemperaturePoint, ...]  # speculative arms that differ in temperature; else empty


# ---- which arm for what ----


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterFor:
    """A supported difference in one scope."""

    scope: str  # as text: "two_turns, turn 2"
    metric: str
    better: str
    other: str
    times: float  # how many times as fast the better one is, above 1
    ci_low: float | None  # of `times`
    ci_high: float | None
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The recommended arms. `disagree`: some arm is better in one scope and worse in another."""

    sentence: str  # for the top of a report
    disagree: bool
    by_scope: tuple[BetterFor, ...]


# ---- drift ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedByRound:
    """One arm's speed in each round over its own median, without arms' and prompts' levels: drift and noise."""

    label: str  # arm's name, or A/A for the control's second entry
    values: tuple[float | None, ...]  # one per round; None: no usable trial


# ---- all of it ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All findings of a run, beside its audit."""

    run_id: str
    simulated: bool
    metric: str  # the design's
    control: str
    rounds: int  # complete rounds, at most as many as planned
    speed_by_round: tuple[SpeedByRound, ...]  # the control first, then its second entry
    losslessness: Losslessness | None  # None: no two answers to compare
    verify_costs: tuple[VerifyCost, ...]  # speculative arms, all classes first
    width_curves: tuple[WidthCurve, ...]
    pass_curves: tuple[PassCurve, ...]
    ceilings: tuple[Ceiling, ...]
    turns: tuple[ArmTurns, ...]  # by workload, the control first
    depths: tuple[DepthCurve, ...]  # by workload, the control first
    sampling: Samplers
    recommendation: Recommendation
    notes: tuple[str, ...] = field(default=())
