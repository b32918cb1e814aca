"""The answer: a line per arm with its verdict, its figures, what stands against it, and what to run next. Pure."""

import math
import shlex
from collections.abc import Sequence
from itertools import takewhile

from orchestrator.audit import Comparison
from orchestrator.findings.turns import late_turns
from orchestrator.report.document import Command, Line
from orchestrator.report.material import FINISHED, Material
from orchestrator.report.verdict import NOT_RANDOMISED, drift_words, sentence, told_drift
from orchestrator.report.words import counted, number, percent, seconds, span, times
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.comparability import Reason
from orchestrator.statistics.run_drift import RUN_DRIFT
from orchestrator.vocabulary import METRICS, VERDICTS, mark

CONTROL = "control"
MOST_ROUNDS = 200  # that a further run is advised to take
# An effect that is found in 80 % of runs lies 1.96 + 0.84 standard errors from the value that it is distinguished from;
# half a 95 % interval is 1.96 of them.
POWER_MARGIN = (1.96 + 0.84) / 1.96
# Times the rounds that the interval alone needs: the A/A floor and the family require more. `power.rounds_for`, which
# simulates the whole verdict in half a second per arm, finds 1.75 to 1.85 for noise of 1 to 3 % and effects to 5 %.
WHOLE_VERDICT = 1.8
NOISE = {"interval_includes_1", "inside_floor", "one_of_many", "odd_rounds"}  # reasons that more rounds can remove
_NOISE_WORDS = {
    "interval_includes_1": "the interval holds 1.00",
    "inside_floor": "the control differs from itself as much",
    "one_of_many": "one of so many arms looks like this by chance",
    "odd_rounds": "single rounds stand out",
}
_WORDS = {
    "no_difference": "no difference",
    "could_be_drift": "undecided",
    "not_engaged": "no proof it ran",
    "confounded": "not comparable",
    "underpowered": "undecided",
}


def verdict_lines(material: Material) -> tuple[Line, ...]:
    """Return the control's line, one per treatment over all prompts, and one per later turn that an average hides."""
    turns = material.findings.turns if material.run.randomised else ()
    late = late_turns(turns, control=material.result.control)
    return (
        *(_control(material) if material.overall else ()),
        *(_line(one, material) for one in material.overall),
        *(Line(sign="!", tone="doubt", verdict="late", sentence=said, figure="") for said in late),
    )


def next_commands(material: Material) -> tuple[Command, ...]:
    """Return the commands that a reader of the answer is likely to want next, the most useful one first."""
    run = material.run
    found = []
    if run.origin == "interlace" and run.status != FINISHED:
        found.append(Command(purpose="to finish", text=f"interlace resume {run.run_id}"))
    elif run.origin == "interlace" and (needed := _rounds_to_decide(material)) is not None:
        found.append(Command(purpose="to decide", text=_with_rounds(material.plan.command, needed)))
    found.append(Command(purpose="why", text=f"interlace audit {run.run_id} --full"))
    found.append(Command(purpose="pictures", text=f"interlace report {run.run_id} -o report.html"))
    return tuple(found)


def rounds_to_decide(one: Comparison, *, alpha: float, margin: float) -> int | None:
    """Return about how many rounds would decide a comparison in 80 % of runs, if the effect is as large as it looks.

    An interval shrinks with the square root of the rounds beyond those that the exact test needs at all. A ratio
    outside the margin has to become clear of 1, one inside it has to have its interval inside.

    Returns:
        None if noise is not what leaves it undecided, or if more than 200 rounds are needed.
    """
    fewest = minimum_rounds(alpha)
    if one.verdict == "underpowered":
        return fewest
    noise_alone = one.verdict == "could_be_drift" and {reason.code for reason in _deciding(one)} <= NOISE
    if not noise_alone or not one.ratio or not one.ci_low or not one.ci_high or math.isinf(one.ci_high):
        return None
    half, size, inside = math.log(one.ci_high / one.ci_low) / 2, abs(math.log(one.ratio)), -math.log1p(-margin)
    distance = size if size > inside else inside - size
    if distance <= 0:
        return None
    spent = fewest - 2
    needed = spent + (one.rounds - spent) * WHOLE_VERDICT * (POWER_MARGIN * half / distance) ** 2
    needed = max(needed, 1.5 * one.rounds)
    return math.ceil(needed) if needed <= MOST_ROUNDS else None


def _rounds_to_decide(material: Material) -> int | None:
    result = material.result
    needed = [rounds_to_decide(one, alpha=result.alpha, margin=result.margin) for one in material.overall]
    return max((each for each in needed if each is not None), default=None) if material.run.randomised else None


def _with_rounds(command: Sequence[str], rounds: int) -> str:
    kept = [one for one in command if one.lstrip("+").partition("=")[0] not in ("design.rounds", "design.detect")]
    return shlex.join(["interlace", "run", *kept, f"design.rounds={rounds}"])


def _control(material: Material) -> tuple[Line]:
    control, rate = material.result.control, _rate(material, material.result.control)
    drift = told_drift(material)
    moved = "" if drift is None else f"{drift_words(drift, material.result.metric)} during the run"
    figure = "; ".join(part for part in (rate, moved) if part)
    return (
        Line(
            sign="\u25cf",
            tone="muted",
            verdict=CONTROL,
            sentence=control,
            figure=figure,
            arm=control,
            answer=CONTROL,
            absolute=rate,
            because=moved,
        ),
    )


def _line(one: Comparison, material: Material) -> Line:
    # Without one direction neither a tick nor an arrow precedes the answer.
    sign, tone = ("!", "doubt") if _is_mixed(one) else mark(one.verdict, one.direction)
    ratio = "" if one.ratio is None else times(one.ratio)
    interval = span(one.ci_low, one.ci_high) if one.ci_low is not None or one.ci_high is not None else ""
    confidence = percent(1 - material.result.alpha)
    parts = [f"{ratio} ({confidence}: {interval})" if interval else ratio] if ratio else []
    if one.wins is not None:
        parts.append(f"faster in {one.wins} of {counted(one.rounds, 'round')}")
    unproved = next((reason.text for reason in one.reasons if reason.code == NOT_RANDOMISED), None)
    parts += [unproved] if unproved else []
    return Line(
        sign=sign,
        tone=tone,
        verdict=VERDICTS[one.verdict].words,
        sentence=sentence(one),
        figure=", ".join(parts),
        arm=one.treatment,
        answer=_answer(one),
        ratio="" if one.varies else f"{ratio} ({interval})" if interval else ratio,  # its range is in the reason
        absolute=_rate(material, one.treatment),
        because=_because(one, material),
        advice=_advice(one, material),
    )


def _answer(one: Comparison) -> str:
    if one.split is not None:
        return "mixed"
    if _is_mixed(one):
        return "varies"
    return one.direction or "different" if one.verdict == "supported" else _WORDS[one.verdict]


def _is_mixed(one: Comparison) -> bool:
    """Return whether parts of the comparison have no direction in common."""
    return one.split is not None or (one.varies is not None and one.direction is None)


def _rate(material: Material, label: str) -> str:
    """Return the median of an arm's generations with its unit; empty if nothing was measured."""
    metric = material.result.metric
    values = [getattr(one, metric) for one in material.result.arms if one.label == label and one.prompt_class is None]
    if not values or values[0] is None:
        return ""
    return seconds(values[0]) if METRICS[metric].lower_is_faster else f"{number(values[0])} tokens/s"


def _because(one: Comparison, material: Material) -> str:
    """Return why the answer is what it is, as it may stand behind "because" or alone."""
    reasons = _deciding(one)
    if one.verdict in ("supported", "no_difference") and not (one.split or one.varies):
        return "" if one.wins is None else _won(one)
    first = one.split or one.varies or next(iter(reasons), None)
    if first is None:
        return ""
    if first.code not in NOISE:
        return first.text
    text = _NOISE_WORDS[first.code]
    drift = told_drift(material)
    return text if drift is None else f"{text} while the machine {drift_words(drift, material.result.metric)}"


def _won(one: Comparison) -> str:
    """Return in how many rounds the answer's direction was seen."""
    wins = one.wins or 0
    if one.direction == "slower":
        return f"slower in {one.rounds - wins} of {counted(one.rounds, 'round')}"
    return f"faster in {wins} of {counted(one.rounds, 'round')}"


def _advice(one: Comparison, material: Material) -> str:
    if not material.run.randomised:
        return ""
    needed = rounds_to_decide(one, alpha=material.result.alpha, margin=material.result.margin)
    if needed is not None:
        return f"about {counted(needed, 'round')} would decide" if one.verdict != "underpowered" else ""
    return ""


def _deciding(one: Comparison) -> Sequence[Reason]:
    """Return the reasons for the verdict; the notes beside them begin with the drift of the run."""
    return list(takewhile(lambda reason: reason.code != RUN_DRIFT, one.reasons))
