"""What is found in a run besides which arm is faster: values only. docs/meaning.md tells each figure's formula.

A figure that may be unknown is a `Figure`: its value and where that comes from, or None and why there is none. Scopes:
`prompt_class` None means all classes. Turns count from 0. Ratios are of an arm over the arm that it is held against.
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
    source: str  # value None: why it is unknown


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
    """Where two answers part. A token None: that answer ends there. Texts None: nobody could tell them.

    The lower half is the probe's, from the table `divergence`; without a probe `verdict` is unknown and `reason` why.
    """

    token_index: int | None  # 0-based; None: the answers are known by their bytes only
    character_index: int | None  # of the text, where both texts are known
    control_token: int | None
    arm_token: int | None
    control_text: str | None  # of the token alone; compared by text: what follows there
    arm_text: str | None
    context_text: str | None  # what both wrote just before
    top: tuple[TopToken, ...]  # the control's checkpoint at this place, most likely first
    gap: float | None  # log-probability of the first over that of the second, nats
    rounding: float | None  # largest change of a top logit between passes of different widths, nats
    verdict: ProbeVerdict
    reason: str  # of the verdict, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOutcome:
    """One arm's answers to one prompt's turn beside another arm's."""

    arm: str
    prompt_id: str
    workload: str
    prompt_class: str
    turn: int
    outcome: Outcome
    reason: str | None  # why unknown; else None
    compared_by: ComparedBy | None  # None when nothing was compared
    answers: int  # of the arm
    deterministic: bool | None  # whether they are all alike; None: fewer than two
    other_deterministic: bool | None  # the same of the answers that it is held against
    divergence: FirstDivergence | None  # where it differs


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLosslessness:
    """One arm's answers beside another's, counted over prompts and turns."""

    arm: str
    against: str  # the control; also the plain arm of the same weights, where the control has others
    same_weights: bool | None  # as that one; None: not known
    identical: int
    differs: int
    unknown: int
    deterministic: bool | None  # in every prompt with several answers; None: no prompt has several
    near_ties: int  # of those that differ, by the probe
    real: int
    earliest: int | None  # token index of the earliest divergence
    outcomes: tuple[PromptOutcome, ...]
    note: str | None  # why nothing of this arm is compared: its sampler, another control
    too_early: str | None = None  # that it parts earlier than an arm of the same width: more than rounding

    @property
    def prompts(self) -> int:
        return self.identical + self.differs + self.unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Losslessness:
    """Do the arms write what the control writes? The control itself is there too: is it deterministic with itself?"""

    control: str
    arms: tuple[ArmLosslessness, ...]  # the control against itself first


# ---- cost of verification ----


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyCost:
    """What a verify round of a speculative arm costs and yields, in one prompt class or all.

    Costs are in units of one plain decoding step of the same checkpoint in the same run: plain is 1.
    """

    arm: str
    prompt_class: str | None
    width: int | None  # verify width: tokens checked by one pass; the engines' block_size
    rounds_timed: int  # verify rounds behind step_s, the first pass of each answer left out
    accept_length: float | None  # tokens committed per timed round, bonus token included
    proposing: float | None  # share of the timed rounds that proposed anything; the others are plain steps
    acceptance_by_position: tuple[float, ...]  # of rounds that propose so many: chance that 1..i are all accepted
    step_s: float | None  # median time of a verify round
    plain_arm: str | None
    plain_s: Figure  # median time of a plain step
    round_cost: Figure  # step_s / plain_s
    verify_cost: Figure  # T(width) / T(1)
    draft_cost: Figure  # the drafter's share: of its passes, or what of round_cost the verification leaves
    predicted: Figure  # speed-up over plain decoding: accept_length / (verify_cost + draft_cost), or / round_cost
    independent: bool  # predicted is of passes timed apart from the rounds, so that measured can prove it wrong
    measured: Interval | None  # decode_tps of the arm over the plain arm
    one_more: Figure  # speed-up if each round that proposes committed one token more
    doubt: str | None  # that verify_cost and draft_cost are not what the rounds themselves took


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthPoint:
    """One verify width of a curve."""

    width: int
    accept_length: float  # expected over all rounds, those without a proposal included
    verify_cost: float | None  # None where only the round as a whole is known
    draft_cost: float | None
    round_cost: float
    predicted: float  # accept_length / round_cost
    interpolated: bool  # the cost lies between measured widths
    arm: str | None  # that ran this width
    measured_accept_length: float | None
    measured: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthCurve:
    """Speed-up by verify width for arms that differ in it alone, in one prompt class or all."""

    arms: str  # the words that their names share
    engine: str
    checkpoint: str
    draft: str | None
    prompt_class: str | None
    points: tuple[WidthPoint, ...]  # by width, plain decoding (width 1) first
    best: Figure  # the width with the largest predicted speed-up
    at_edge: bool  # the best is the widest that could be judged: a wider one may be better
    best_measured: int | None  # of the widths that ran, by the measured ratio
    source: str  # of the costs
    refused: str | None = None  # why no width is predicted: an arm contradicts the replay. Points are those that ran


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCurve:
    """How long one pass of a checkpoint takes, by the number of tokens in it, over a pass of one."""

    checkpoint: str
    role: Literal["target", "draft"]
    seconds: tuple[tuple[int, float], ...]  # (width, median seconds), by width
    cost: tuple[tuple[int, float], ...]  # (width, T(width) / T(1)); empty when a pass of one was not timed
    source: str


# ---- ceiling ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """How fast an arm could decode if it did nothing but read what it must: bandwidth over bytes."""

    arm: str
    speculates: bool
    weights_bytes: Figure  # read by a pass of one token; of a mixture of experts, the active ones
    draft_bytes: Figure  # read by the drafter for one verify round, weights and cache; 0 for plain decoding
    kv_bytes: Figure  # of the cache at this run's mean context
    context_tokens: float | None  # that mean: prompt and half of the answer
    bytes_per_pass: Figure  # the sum: for one token (plain) or one verify round
    bandwidth_bytes_per_s: Figure
    ceiling_passes_per_s: Figure
    ceiling_tps: Figure  # passes x accept length
    measured_passes_per_s: float | None
    measured_tps: float | None  # median decode rate
    share: Figure  # of the ceiling that was reached, in passes
    note: str | None  # such as: above the ceiling


# ---- turns ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """One turn of the conversations with several, in one arm: medians."""

    turn: int
    generations: int
    ttft_s: float | None
    prompt_tokens: float | None
    cached_tokens: Figure  # unknown is not 0
    new_tokens: Figure  # prompt - cached: what had to be processed
    prefill_tps: Figure  # of the new tokens only
    ttft_ratio: Interval | None  # over the control arm's in the same turn; None for the control
    verdict: str | None  # of that ratio, as an audit of ttft_s gives it


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTurns:
    """An arm in one workload's conversations of several turns."""

    arm: str
    workload: str
    turns: tuple[TurnFigures, ...]
    flags: tuple[str, ...]  # codes: cached_zero_but_fast, cached_but_slow, prefix_lost, cached_unknown
    remarks: tuple[str, ...]  # the same in words with their numbers


# ---- sampling ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperaturePoint:
    """How much a speculative arm accepts at its temperature."""

    arm: str
    engine: str
    checkpoint: str
    width: int | None
    temperature: float | None
    accept_length: float | None
    acceptance_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samplers:
    """The samplers of the run's arms, and what to know of comparing them."""

    note: str | None  # None: all arms sample alike
    by_temperature: tuple[TemperaturePoint, ...]  # speculative arms that differ in temperature; else empty


# ---- which arm for what ----


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterFor:
    """A supported difference in one scope."""

    scope: str  # in words: "two_turns, turn 2"
    metric: str
    better: str
    other: str
    times: float  # how many times as fast the better one is, above 1
    ci_low: float | None  # of `times`
    ci_high: float | None
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Which arm for what. `disagree`: some arm is better for one thing and worse for another."""

    sentence: str  # for the top of a report
    disagree: bool
    by_scope: tuple[BetterFor, ...]


# ---- drift ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedByRound:
    """One arm's speed in each round over its own median, arms' and prompts' levels taken out: drift and noise."""

    label: str  # arm's name, or A/A for the control's second entry
    values: tuple[float | None, ...]  # one a round; None: nothing usable


# ---- all of it ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All findings of a run, beside its audit."""

    run_id: str
    simulated: bool
    metric: str  # the design's
    control: str
    rounds: int  # complete ones, at most as many as planned
    speed_by_round: tuple[SpeedByRound, ...]  # the control first, then its second entry
    losslessness: Losslessness | None  # None: no two answers to compare
    verify_costs: tuple[VerifyCost, ...]  # speculative arms, all classes first
    width_curves: tuple[WidthCurve, ...]
    pass_curves: tuple[PassCurve, ...]
    ceilings: tuple[Ceiling, ...]
    turns: tuple[ArmTurns, ...]  # by workload, the control first
    sampling: Samplers
    recommendation: Recommendation
    notes: tuple[str, ...] = field(default=())
