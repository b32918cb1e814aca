"""Single passes of a model outside of any answer: how likely its tokens are, and what a pass of each width takes.

Both run on caches of their own, and start like an answer does: the prompt without its last token, in chunks.
"""

import copy
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.engines.base import sha256_of_ids
from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.protocol import PassesTimed, PassTiming, Scored, ScoreTokens, TimePasses, TokenScore, WidthChange

COMPARED_PLACES = 64  # at most, the asked one and those before it: one place alone shows rounding by chance only
CONTEXT_TOKENS = 24  # of the answer, reported as text
MIN_REPEATS = 3  # a short run has time for no more; fewer have no quartiles
_TARGET, _DRAFT = "target", "draft"


def _leave(cache: list[Any]) -> None:
    """The default treatment of a cache after a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A model as its engine runs it.

    Attributes:
        model: of token ids (1, n) and a cache, the logits (1, n, vocabulary).
        after_pass: what the engine does to the cache after a pass: quantise it.
    """

    model: Callable[..., Any]
    make_cache: Callable[[], list[Any]]
    prefill_step_size: int
    after_pass: Callable[[list[Any]], None] = _leave

    def processed(self, token_ids: Sequence[int], budget: "Budget") -> list[Any]:
        """A cache that holds these tokens."""
        import mlx.core as mx

        cache = self.make_cache()
        for start in range(0, len(token_ids), self.prefill_step_size):
            budget.require("processing the prompt")
            self.model(mx.array([token_ids[start : start + self.prefill_step_size]]), cache=cache)
            self.after_pass(cache)
            mx.eval([layer.state for layer in cache])
        return cache


class Budget:
    """Seconds that a probe may take."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds

    @property
    def left_s(self) -> float:
        return self._end - self._clock()

    @property
    def spent(self) -> bool:
        return self.left_s <= 0

    def require(self, doing: str) -> None:
        """Go on only with time left.

        Raises:
            ProbeUnsupported: none is left.
        """
        if self.spent:
            raise ProbeUnsupported(f"its {self._seconds:.3g} s were over while {doing}")


# ---- how likely ----


def score(target: Probed, request: ScoreTokens, *, prompt_ids: Sequence[int], decode: Callable[..., str]) -> Scored:
    """See `workers.protocol.ScoreTokens`.

    Changes are of log-probabilities, not of logits: what all logits of a place share moves no choice, and the softmax
    takes it out.

    Args:
        decode: token ids to text.

    Raises:
        ProbeUnsupported: another prompt, or no time left.
    """
    if sha256_of_ids(prompt_ids) != request.prompt_sha256:
        raise ProbeUnsupported("these messages give another prompt here than the one that was answered")
    answer = _Answer(
        prefix=prompt_ids[:-1], sequence=[prompt_ids[-1], *request.token_ids], most_likely=request.most_likely
    )
    budget = Budget(request.budget_s)
    top, rivals = answer.reference(target, request.rivals, budget)
    changes = [answer.change(target, width, budget) for width in sorted(set(request.widths) - {1})]

    def scored(token: int, logprob: float) -> TokenScore:
        return TokenScore(token_id=token, text=decode([token]), logprob=_finite(logprob))

    return Scored(
        request_id=request.request_id,
        top=[scored(token, logprob) for token, logprob in top],
        rivals=[scored(token, logprob) for token, logprob in zip(request.rivals, rivals, strict=True)],
        context_text=decode(request.token_ids[-CONTEXT_TOKENS:]) if request.token_ids else "",
        changes=changes,
        compared_places=len(answer.chosen),
    )


@dataclass(slots=True, kw_only=True)
class _Answer:
    """An answer that is processed again. At place i of the sequence the answer's token i was chosen."""

    prefix: Sequence[int]
    sequence: Sequence[int]
    most_likely: int
    chosen: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # by place: likely tokens, log-probabilities

    def reference(
        self, target: Probed, rivals: Sequence[int], budget: Budget
    ) -> tuple[list[tuple[int, float]], list[float]]:
        """Run one token per pass. Returns the last place's most likely tokens in order, and the rivals' values."""
        import mlx.core as mx

        logprobs: Any = None
        for place, logprobs in self._forced(target, 1, budget):
            if place < len(self.sequence) - COMPARED_PLACES:
                continue
            count = min(self.most_likely, logprobs.size)
            likely = mx.argpartition(-logprobs, kth=count - 1)[:count]
            likely = likely[mx.argsort(-logprobs[likely])]
            self.chosen[place] = (likely, logprobs[likely])
            mx.eval(self.chosen[place])
        tokens, values = self.chosen[len(self.sequence) - 1]
        top = list(zip(tokens.tolist(), values.tolist(), strict=True))
        return top, [logprobs[token].item() for token in rivals]

    def change(self, target: Probed, width: int, budget: Budget) -> WidthChange:
        """The change caused by this many tokens per pass."""
        import mlx.core as mx

        changes: dict[int, float] = {}
        for place, logprobs in self._forced(target, width, budget):
            if place in self.chosen:
                tokens, values = self.chosen[place]
                moved: Any = mx.abs(logprobs[tokens] - values).max().item()
                changes[place] = _finite(moved)
        return WidthChange(width=width, at_place=changes[len(self.sequence) - 1], largest=max(changes.values()))

    def _forced(self, target: Probed, width: int, budget: Budget) -> Iterator[tuple[int, Any]]:
        """Return the log-probabilities at every place, in passes of `width` tokens from the prompt's last one on.

        A last pass is as wide as the others: fillers stand for proposals that would be rejected.
        """
        import mlx.core as mx

        cache = target.processed(self.prefix, budget)
        for start in range(0, len(self.sequence), width):
            budget.require(f"going through the answer {width} tokens per pass")
            tokens = list(self.sequence[start : start + width])
            fillers = [tokens[-1]] * (width - len(tokens))
            logits = target.model(mx.array([tokens + fillers]), cache=cache)[0].astype(mx.float32)
            target.after_pass(cache)
            logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            mx.eval(logprobs)
            yield from ((start + offset, logprobs[offset]) for offset in range(len(tokens)))


def _finite(value: float) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise EngineError(FaultKind.probe_failed, f"the model's log-probabilities hold {value}")
    return value


# ---- how long ----


class Pass:
    """One pass that can be timed again and again: afterwards the cache is as it was before."""

    def __init__(self, probed: Probed, cache: list[Any], width: int) -> None:
        self._probed = probed
        self._cache = cache
        self._width = width

    def seconds(self, token_ids: Sequence[int]) -> float:
        """Time one pass over these tokens, the choice of a token at each of them included, as a verify step does."""
        import mlx.core as mx

        tokens = mx.array([list(token_ids[: self._width])])
        mx.eval(tokens)
        kept = {place: copy.deepcopy(layer) for place, layer in enumerate(self._cache) if not _trims(layer)}
        mx.synchronize()
        started = time.perf_counter()
        mx.eval(mx.argmax(self._probed.model(tokens, cache=self._cache), axis=-1))
        taken_s = time.perf_counter() - started
        for place, layer in enumerate(self._cache):
            if place in kept:
                self._cache[place] = kept[place]
            else:
                layer.trim(self._width)
        return taken_s


def _trims(layer: Any) -> bool:
    """True if a layer of a cache can drop tokens again. A rotating one can until it is full."""
    return bool(layer.is_trimmable()) and getattr(layer, "max_size", None) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDraft:
    """A draft that proposes a block in one pass.

    Attributes:
        width: of the block.
        after: given the tokens of a context, what times one pass after it; the cache is as before each time.
    """

    width: int
    after: Callable[[Sequence[int], Budget], Callable[[], float]]


def time_passes(
    target: Probed, draft: Probed | BlockDraft | None, request: TimePasses, *, prompt_ids: Sequence[int]
) -> PassesTimed:
    """See `workers.protocol.TimePasses`. A draft model's drafting pass has one token: it is called for each proposal.

    Raises:
        ProbeUnsupported: no time for enough repetitions.
    """
    budget = Budget(request.budget_s)
    text = _Text([*prompt_ids, *request.token_ids])
    context = text.cut(0, request.context_tokens)
    passes: dict[tuple[str, int], Callable[[int], float]] = {}
    if request.widths:
        cache = target.processed(context, budget)
        for width in sorted(set(request.widths)):
            passes[_TARGET, width] = _on_text(Pass(target, cache, width), text, width, request)
    if isinstance(draft, BlockDraft):
        drafted = draft.after(context, budget)
        passes[_DRAFT, draft.width] = lambda _: drafted()
    elif draft is not None:
        passes[_DRAFT, 1] = _on_text(Pass(draft, draft.processed(context, budget), 1), text, 1, request)
    timings, notes = timed(passes, request, budget)
    return PassesTimed(
        request_id=request.request_id, timings=timings, context_tokens=request.context_tokens, notes=notes
    )


class _Text:
    """Tokens of a real text, as many as are asked for: of a mixture of experts, tokens decide what is read."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = list(token_ids)

    def cut(self, start: int, count: int) -> list[int]:
        whole = len(self._token_ids)
        return [self._token_ids[place % whole] for place in range(start, start + count)]


def _on_text(each: Pass, text: _Text, width: int, request: TimePasses) -> Callable[[int], float]:
    """The pass's time in each repetition, over other tokens each time."""
    return lambda repeat: each.seconds(text.cut(request.context_tokens + repeat, width))


Key = tuple[str, int]  # role, width


def timed(
    passes: Mapping[Key, Callable[[int], float]], request: TimePasses, budget: Budget
) -> tuple[list[PassTiming], list[str]]:
    """Median and quartiles of each pass: rounds of all of them, each in random order, a first round left out.

    Returns:
        The timings, and which passes are left out because the first round showed that the time would not suffice for
        them: the longest ones.

    Raises:
        ProbeUnsupported: the budget ends before enough rounds of the rest.
    """
    drawn = random.Random(request.seed)
    order, notes = sorted(passes), list[str]()
    rounds: list[dict[Key, float]] = []
    for repeat in range(request.repeats + 1):
        if repeat == 1:
            order, notes = _affordable(rounds[0], budget)
        if len(rounds) > MIN_REPEATS and budget.spent:
            break
        drawn.shuffle(order)
        taken = {}
        for key in order:
            if 1 <= len(rounds) <= MIN_REPEATS:
                budget.require(f"timing passes, after {len(rounds) - 1} repetitions")
            taken[key] = passes[key](repeat)
        rounds.append(taken)
    return [_timing(*key, [taken[key] for taken in rounds[1:]]) for key in sorted(order)], notes


def _affordable(first: Mapping[Key, float], budget: Budget) -> tuple[list[Key], list[str]]:
    """The passes of which enough rounds fit into what is left, by the first round's times; the shortest always."""
    kept: list[Key] = []
    for key in sorted(first, key=lambda key: first[key]):
        if not kept or MIN_REPEATS * sum(first[each] for each in (*kept, key)) <= budget.left_s:
            kept.append(key)
    left_out = [f"no time for the {role}'s passes of width {width}" for role, width in sorted(set(first) - set(kept))]
    return kept, left_out


def _timing(role: str, width: int, seconds: Sequence[float]) -> PassTiming:
    low_s, median_s, high_s = statistics.quantiles(seconds, n=4, method="inclusive")
    return PassTiming(role=role, width=width, median_s=median_s, low_s=low_s, high_s=high_s, repeats=len(seconds))
