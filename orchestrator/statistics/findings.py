"""The results of an audit: values, and the sentences that sum them up."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.effects import Effect
from orchestrator.statistics.carry_over import CarryOver
from orchestrator.statistics.comparability import Reason, Scope
from orchestrator.statistics.observations import ArmSummary
from orchestrator.vocabulary import VERDICTS

PROMPT, COURSE = "depends_on_prompt", "changes_over_run"
VARIES = (PROMPT, COURSE)  # codes of the reasons why no single ratio is a headline
SPLIT = "directions_disagree"  # code of the reason why a comparison names no winner


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A treatment against the control in one scope. Numbers are None if there is no data for them."""

    treatment: str
    control: str
    workload: str | None = None  # None: all workloads
    prompt_class: str | None  # None: all classes
    turn: int | None  # None: all turns
    metric: str
    verdict: str
    direction: str | None  # faster | slower, if supported and no part of the scope has the opposite direction
    ratio: float | None  # of the metric, treatment over control
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    family_p: float | None  # for the family of all treatments; None with one treatment only
    rounds: int  # complete ones
    wins: int | None  # rounds in which the treatment was the faster
    aa_ratio: float | None
    aa_low: float | None
    aa_high: float | None
    engaged_share: float | None  # of the treatment's generations that requested a mechanism
    included: "Included | None"  # the result with the first attempts, excluded trials too; None: nothing was lost
    reasons: tuple[Reason, ...]  # the deciding ones first
    typical: float | None = None  # the ratio of a typical round, beside the mean

    @property
    def scope(self) -> Scope:
        return Scope(workload=self.workload, prompt_class=self.prompt_class, turn=self.turn)

    @property
    def over_all(self) -> bool:
        return self.scope == Scope()

    @property
    def varies(self) -> Reason | None:
        """Return why no single ratio sums it up: the effect depends on the prompt, or changed during the run."""
        return next((reason for reason in self.reasons if reason.code in VARIES), None)

    @property
    def split(self) -> Reason | None:
        """Return why it has no single direction: parts of its scope have opposite ones."""
        return next((reason for reason in self.reasons if reason.code == SPLIT), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Included:
    """The comparison with the first attempt of each round, excluded trials too (intention to treat)."""

    verdict: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AaFloor:
    """The control against itself in one scope."""

    workload: str | None = None
    prompt_class: str | None
    turn: int | None
    effect: Effect

    @property
    def scope(self) -> Scope:
        return Scope(workload=self.workload, prompt_class=self.prompt_class, turn=self.turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSet:
    """The arms not distinguishable from the best in one scope, the best first; none when its parts disagree."""

    workload: str | None = None
    prompt_class: str | None
    turn: int | None
    arms: tuple[str, ...]

    @property
    def scope(self) -> Scope:
        return Scope(workload=self.workload, prompt_class=self.prompt_class, turn=self.turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The judgement of a run by one version of the method."""

    method_version: str
    control: str
    metric: str
    alpha: float
    margin: float
    seed: int
    comparisons: tuple[Comparison, ...]  # by treatment, over all first
    waits: tuple[Comparison, ...]  # each turn's time to the first token, of conversations, where metric is another
    floors: tuple[AaFloor, ...]
    best: tuple[BestSet, ...]  # over all first; no single best without the classes'
    carry_over: CarryOver | None  # the largest; None: too few trials to estimate it
    arms: tuple[ArmSummary, ...]
    drift: float | None  # of the metric, last control run over the first, minus 1
    drift_reason: str | None  # why there is none
    summary: str


def summarise(comparisons: Sequence[Comparison], drift: float | None, metric: str) -> str:
    """Return one sentence per arm over all prompts; then the run's drift. An arm that is better for one thing and
    worse for another is never called the better one."""
    sentences = [_sentence(one) for one in comparisons if one.over_all]
    if not sentences:
        sentences.append("Nothing to compare: the run has no arm besides its control.")
    if drift is not None:
        sentences.append(f"From first to last control run {metric} changed by {drift:+.1%}.")
    return " ".join(sentences)


def _sentence(one: Comparison) -> str:
    words = VERDICTS[one.verdict].words
    head = f"{one.treatment} against {one.control}: {words}"
    if (split := one.split) is not None:
        return f"{one.treatment} against {one.control}: {split.text}."
    if one.ratio is None or one.ci_low is None or one.ci_high is None or one.verdict in ("not_engaged", "confounded"):
        return f"{head}; {'; '.join(reason.text for reason in one.reasons[:2])}."
    if (varies := one.varies) is not None:
        return f"{one.treatment} against {one.control}: {varies.text}; on average {words}{_led(one)}."
    figure = f"{one.ratio:.3f}x ({one.ci_low:.3f} to {one.ci_high:.3f}) in {one.rounds} rounds"
    return f"{head}{_led(one)}, {figure}."


def _led(one: Comparison) -> str:
    return f", {one.direction}" if one.direction else ""
