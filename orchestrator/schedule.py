"""The order of all trials of a run: a pure function of the plan, the same on every machine.

The randomisation test of `orchestrator.effects` is exact because each round's order is a uniform draw, so the draw has
to be exactly that, and repeatable. Python's own `random` promises its sequence only for some methods and versions;
this module draws from SHA-256 in counter mode instead, which has no version.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from orchestrator.errors import InputError
from orchestrator.plan import Plan, Prompt

T = TypeVar("T")

# Stored with every run: the test of its effects re-draws from this distribution.
ORDER_DISTRIBUTION = "uniform-permutation/sha256-ctr-v1"

WILLIAMS_DISTRIBUTION = "williams-squares/sha256-ctr-v1"

# The control's second entry in a round. No arm may bear this name.
AA_LABEL = "A/A"

Kind = Literal["warmup", "bracket", "measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTrial:
    """One arm to run once."""

    sequence: int  # 0-based, over the whole run
    kind: Kind
    round: int | None  # 0-based; None outside the rounds
    position: int | None  # 0-based, within the round
    label: str  # the arm's name, or AA_LABEL
    arm: str  # the arm's name
    is_aa: bool
    prompt_ids: tuple[str, ...]
    seed: int  # of the sampling: equal for all arms of a round


def draw_rounds(arms: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """The random orders: `rounds` lists, each holding every arm once, all orders equally likely.

    Distribution "uniform-permutation/sha256-ctr-v1": block i of the stream is SHA-256 of the ASCII text
    `interlace|order|SEED|i` (decimals), read as eight big-endian 32-bit words. A number below n is a word modulo n;
    words at or above the largest multiple of n are thrown away, so that no remainder is favoured. Each round is a
    Fisher-Yates shuffle of the arms as given, from the last place down; rounds take the words one after the other,
    so that fewer rounds are a prefix of more.

    Raises:
        ValueError: no arms, an arm named twice, or a negative number of rounds.
    """
    if not arms:
        raise ValueError("no arms to order: give at least one")
    if twice := [arm for arm, count in Counter(arms).items() if count > 1]:
        raise ValueError(f"arms named twice: {twice}; a round holds each arm once, so give them different names")
    if rounds < 0:
        raise ValueError(f"{rounds} rounds: give zero or more")
    words = _words("order", seed)
    return [_shuffled(arms, words) for _ in range(rounds)]


def draw_williams(arms: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """Random orders in Williams squares: in each, every arm follows every other equally often within the rounds.

    Distribution "williams-squares/sha256-ctr-v1", from the stream of the text `interlace|williams|SEED|i`: for each
    square the arms are shuffled onto the letters of the square, then its rows are shuffled; see `draw_rounds` for the
    shuffle. So a relabelling of the arms over a whole square is as likely as any other, and nothing smaller is.

    Raises:
        ValueError: as `draw_rounds`.
    """
    draw_rounds(arms, rounds, seed)  # its errors
    words = _words("williams", seed)
    orders: list[list[str]] = []
    while len(orders) < rounds:
        dealt = _shuffled(arms, words)
        orders += [[dealt[letter] for letter in row] for row in _shuffled(_square(len(arms)), words)]
    return orders[:rounds]


def square_rounds(entries: int) -> int:
    """The rounds of a Williams square: as many as entries, or twice as many for an odd number of them."""
    return entries if entries % 2 == 0 else max(2 * entries, 1)


def whole_squares(rounds: int, *, square: int, alpha: float) -> int:
    """The rounds rounded up to whole squares, and to as many squares as the level needs."""
    return max(-(-rounds // square), minimum_rounds(alpha)) * square


def _square(letters: int) -> list[list[int]]:
    """Williams 1949: each row is the first one moved on; for an odd number of letters the rows backwards as well."""
    if letters == 1:
        return [[0], [0]]
    first = [(place + 1) // 2 if place % 2 else (letters - place // 2) % letters for place in range(letters)]
    rows = [[(letter + step) % letters for letter in first] for step in range(letters)]
    return rows if letters % 2 == 0 else rows + [row[::-1] for row in rows]


def draw_orders(plan: Plan, rounds: int) -> list[list[str]]:
    """Draw the orders of the plan's rounds by the method that the plan chose."""
    draw = draw_williams if plan.design.order == "williams" else draw_rounds
    return draw(labels(plan), rounds, plan.design.seed)


def order_distribution(plan: Plan) -> str:
    """Return the name of the distribution of the orders, as stored with the run."""
    return WILLIAMS_DISTRIBUTION if plan.design.order == "williams" else ORDER_DISTRIBUTION


def rounds_together(plan: Plan) -> int:
    """Return the number of rounds that are exchanged together: those of a square, else 1."""
    return square_rounds(len(labels(plan))) if plan.design.order == "williams" else 1


def replay_seed(plan: Plan) -> int | None:
    """Return the seed of the replays' orders, or None for squares, whose rounds must keep their orders."""
    return plan.design.seed if plan.design.order == "random" else None


def minimum_rounds(alpha: float) -> int:
    """The fewest rounds whose exchanges can reach the level: the smallest R with 2 / 2**R <= alpha.

    Raises:
        ValueError: alpha is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha={alpha}: give a level between 0 and 1, such as 0.05")
    rounds = 1
    while 2.0 ** (1 - rounds) > alpha:
        rounds += 1
    return rounds


def labels(plan: Plan) -> tuple[str, ...]:
    """The labels of a round: every arm, and the control once more if the design asks for it.

    Raises:
        InputError: an arm bears the label of the control's second entry, or the control is no arm.
    """
    names = tuple(arm.name for arm in plan.arms)
    if plan.control not in names:
        raise InputError(f"control={plan.control}: no such arm; choose one of {', '.join(names)}")
    if AA_LABEL in names:
        raise InputError(f"an arm is named {AA_LABEL!r}, the label of the control's second entry: rename it")
    return (*names, AA_LABEL) if plan.design.aa else names


def prompt_rounds(plan: Plan) -> list[tuple[str, ...]]:
    """The prompts of each round.

    By workload a round holds the whole prompt set in the plan's order. By prompt it holds one prompt: prompts are
    dealt in passes, each pass holding every prompt once in a random order, so that after any number of rounds no
    prompt is more than one round ahead of another.

    Raises:
        InputError: the plan has no prompts.
    """
    prompts = tuple(prompt.id for prompt in plan.prompts)
    if not prompts:
        raise InputError("the plan has no prompts: choose a workload with at least one")
    rounds = plan.design.rounds
    if plan.design.interleave_by == "workload":
        return [prompts] * rounds
    words = _words("prompts", plan.design.seed)
    dealt: list[str] = []
    while len(dealt) < rounds:
        dealt += _shuffled(prompts, words)
    return [(prompt,) for prompt in dealt[:rounds]]


def rounds_by_class(plan: Plan) -> dict[str, int]:
    """Count the rounds that measure each prompt class, classes in the plan's order."""
    classes = {prompt.id: prompt.prompt_class for prompt in plan.prompts}
    counts = dict.fromkeys(classes.values(), 0)
    for prompts in prompt_rounds(plan):
        for prompt_class in {classes[prompt] for prompt in prompts}:
            counts[prompt_class] += 1
    return counts


def build_schedule(plan: Plan) -> tuple[ScheduledTrial, ...]:
    """Every trial of the run in order: warm-ups, a control run, the rounds, a control run.

    Warm-ups go arm by arm, so that a model is loaded once for them; `design.warmups` generations of the first prompt
    of each workload. The control runs at both ends hold the whole prompt set and are sampled with the same seed, so
    that what differs between them is the machine.

    Raises:
        InputError: see `labels` and `prompt_rounds`.
    """
    trials: list[ScheduledTrial] = []
    for kind, round_, position, label, prompt_ids in _slots(plan):
        is_aa = label == AA_LABEL
        trials.append(
            ScheduledTrial(
                sequence=len(trials),
                kind=kind,
                round=round_,
                position=position,
                label=label,
                arm=plan.control if is_aa else label,
                is_aa=is_aa,
                prompt_ids=prompt_ids,
                seed=_sampling_seed(plan.design.seed, kind, round_),
            )
        )
    return tuple(trials)


def attempt_order(trials: Sequence[ScheduledTrial], *, attempt: int, seed: int) -> tuple[ScheduledTrial, ...]:
    """A round's trials as an attempt runs them: the first as scheduled, each later one in an order drawn anew.

    A rule may leave out a trial more often in some place of the round. If the order were kept until nothing is left
    out, the remaining orders would no longer be random. Trials outside the rounds have no order.
    """
    if attempt == 0 or trials[0].round is None:
        return tuple(trials)
    words = _words(f"replay|{trials[0].round}|{attempt}", seed)
    return tuple(replace(trial, position=place) for place, trial in enumerate(_shuffled(trials, words)))


_Slot = tuple[Kind, int | None, int | None, str, tuple[str, ...]]


def _slots(plan: Plan) -> Iterator[_Slot]:
    rounds = prompt_rounds(plan)
    everything = tuple(prompt.id for prompt in plan.prompts)
    bracket: list[_Slot] = [("bracket", None, None, plan.control, everything)] if plan.design.bracket else []
    for arm in plan.arms:
        for first in _first_of_each_workload(plan.prompts):
            for _ in range(plan.design.warmups):
                yield "warmup", None, None, arm.name, (first,)
    yield from bracket
    orders = draw_orders(plan, len(rounds))
    for index, (order, prompt_ids) in enumerate(zip(orders, rounds, strict=True)):
        for position, label in enumerate(order):
            yield "measured", index, position, label, prompt_ids
    yield from bracket


def _first_of_each_workload(prompts: Sequence[Prompt]) -> list[str]:
    first: dict[str, str] = {}
    for prompt in prompts:
        first.setdefault(prompt.workload, prompt.id)
    return list(first.values())


def _sampling_seed(seed: int, kind: Kind, round_: int | None) -> int:
    """Derive a seed below 2**31, so that it fits any generator and any database's integer."""
    text = f"interlace|sampling|{seed}|{kind}|{round_}"
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:4], "big") >> 1


def _words(purpose: str, seed: int) -> Iterator[int]:
    """An endless stream of 32-bit words; another purpose gives an independent stream."""
    block = 0
    while True:
        digest = hashlib.sha256(f"interlace|{purpose}|{seed}|{block}".encode("ascii")).digest()
        for start in range(0, 32, 4):
            yield int.from_bytes(digest[start : start + 4], "big")
        block += 1


def _below(n: int, words: Iterator[int]) -> int:
    usable = 2**32 - 2**32 % n
    while (word := next(words)) >= usable:
        pass
    return word % n


def _shuffled(items: Sequence[T], words: Iterator[int]) -> list[T]:
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        chosen = _below(last + 1, words)
        order[last], order[chosen] = order[chosen], order[last]
    return order
