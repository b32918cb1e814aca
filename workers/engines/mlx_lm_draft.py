"""mlx-lm with a draft model: it proposes `block_size - 1` tokens, the target checks them in one pass.

mlx-lm marks each token that the draft proposed (`from_draft`). Rounds are recovered from these flags; that the draft
ran at all is counted independently, at its calls, since without an accepted token no flag is ever set.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from workers.engines.base import LoadInfo, TurnRequest, parse_settings
from workers.engines.mlx_common import MlxEngine, MlxTurn
from workers.engines.mlx_loading import load_model
from workers.engines.mlx_probes import Probed
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence
from workers.settings import EngineSettings, at_least, setting

# Texts whose token ids must agree: case, spaces, digits, code, accents, other scripts, an emoji.
_PROBES = (
    "The quick brown fox, 1234567890 jumps.",
    "def f(x):\n    return x**2  # naïve\n",
    "Größe café 東京 мир 🙂",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of mlx-lm's loop with a draft model."""

    block_size: int = setting(
        4,
        "Verify width: of a block, one token is the target's own, so below 2 nothing would be drafted.",
        limit=at_least(2),
        unit="tokens",
        word="num_draft_tokens + 1",
    )
    prefill_step_size: int = setting(512, "Most tokens of the prompt in one prefill pass.", limit=at_least(1))
    prefix_cache: bool = setting(True, "Reuse the processed prefix between the turns of one conversation.")


class CountedDraft:
    """The draft model as mlx-lm calls it, and how often it was called."""

    __slots__ = ("model", "passes")

    def __init__(self, model: Any) -> None:
        self.model = model
        self.passes = 0

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        self.passes += 1
        return self.model(tokens, cache=cache)


class MlxLmDraft(MlxEngine):
    """mlx-lm with a draft model."""

    settings_kind = Settings
    takes_draft = True

    def load(self) -> LoadInfo:
        if self.draft is None:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine mlx_lm_draft: checkpoint {self.checkpoint.get('name')} names no draft",
                remedy="set engine.draft to a checkpoint",
            )
        return super().load()

    def prepare(self, request: TurnRequest) -> None:
        super().prepare(request)
        self._draft.passes = 0

    def _check_settings(self) -> None:
        self._own = parse_settings(Settings, self.settings, engine="mlx_lm_draft")

    def _prepare_models(self) -> Sequence[Callable[[], list[Any]]]:
        from mlx_lm.models.cache import make_prompt_cache

        loaded = load_model(self.draft or {})
        require_same_tokenizer(self.target.tokenizer, loaded.tokenizer)
        self._draft = CountedDraft(loaded.model)
        self._draft_notes = tuple(f"draft: {note}" for note in loaded.notes)
        for role, model in (("target", self.target.model), ("draft", loaded.model)):
            _require_trimmable(role, make_prompt_cache(model))
        return [partial(make_prompt_cache, model) for model in (self.target.model, loaded.model)]

    def _drafted_per_step(self) -> int | None:
        return self._own.block_size - 1

    def _keeps_prefix(self) -> bool:
        return self._own.prefix_cache

    def _generate_arguments(self) -> dict[str, Any]:
        return {
            "draft_model": self._draft,
            "num_draft_tokens": self._own.block_size - 1,
            "prefill_step_size": self._own.prefill_step_size,
        }

    def _probed_draft(self) -> Probed:
        return replace(self._probed(), model=self._draft.model, make_cache=self._makers[1])

    def _notes(self) -> Sequence[str]:
        sampled = self.sampling.get("temperature", 0.0) > 0
        note = "sampled: mlx-lm accepts a proposal only if target and draft draw the same token"
        return (*super()._notes(), *self._draft_notes, *([note] if sampled else []))

    def _account(self, turn: MlxTurn) -> tuple[Sequence[tuple[int, int, int]] | None, Sequence[Evidence]]:
        steps = rounds_from_flags(
            turn.from_draft, max_tokens=turn.request.max_tokens, drafted_per_step=self._own.block_size - 1
        )
        prefill_passes = math.ceil((turn.suffix.size - 1) / self._own.prefill_step_size)
        sign = evidence_of(steps, drafting_passes=max(0, self._draft.passes - prefill_passes))
        return (steps if sign.engaged else None), [sign]


def rounds_from_flags(
    from_draft: Sequence[bool], *, max_tokens: int, drafted_per_step: int
) -> list[tuple[int, int, int]]:
    """The verify steps (drafted, accepted, committed) of one generation, from mlx-lm's flag of each token.

    A step commits the accepted proposals and then one token of the target's own, which is not from the draft: it ends
    the step. Only the last step can lack that token, cut by max_tokens or by the end of the text. mlx-lm never
    proposes more than max_tokens leaves room for. The first step verifies from the prompt's last token, so prefill
    yields no token of its own, and the committed ones add up to all.
    """
    steps = []
    start = 0
    while start < len(from_draft):
        end = start
        while end < len(from_draft) and from_draft[end]:
            end += 1
        accepted = end - start
        committed = min(accepted + 1, len(from_draft) - start)
        steps.append((min(drafted_per_step, max_tokens - start), accepted, committed))
        start += committed
    return steps


def evidence_of(steps: Sequence[tuple[int, int, int]], *, drafting_passes: int) -> Evidence:
    """Evidence that the draft ran, and that it was useful.

    Args:
        drafting_passes: calls of the draft model beyond its prefill; each proposes one token.
    """
    drafted, accepted = sum(step[0] for step in steps), sum(step[1] for step in steps)
    agree = drafted == drafting_passes
    counted = f"{accepted} of {drafting_passes} proposed tokens accepted in {len(steps)} verify steps"
    if not drafting_passes:
        counted = "the draft model was never called to propose"
    elif not agree:
        counted = f"the draft model was called {drafting_passes} times to propose, the flags say {drafted}"
    engaged = drafting_passes > 0
    return Evidence(
        mechanism="draft_model",
        requested=True,
        engaged=engaged if agree or not engaged else None,
        useful=accepted > 0 if agree or not engaged else None,
        source="mlx_lm GenerationResponse.from_draft; calls of the draft model",
        text=counted,
        drafted=drafting_passes,
        accepted=accepted if agree else None,
    )


def require_same_tokenizer(target: Any, draft: Any) -> None:
    """Require that both tokenizers are equal: mlx-lm compares token ids, and checks nothing.

    Raises:
        EngineError: tokenizer_mismatch, with the first difference.
    """
    difference = _tokenizer_difference(target, draft)
    if difference:
        raise EngineError(
            FaultKind.tokenizer_mismatch,
            f"the draft's tokenizer is not the target's: {difference}",
            remedy="choose a draft of the same family",
        )


def _tokenizer_difference(target: Any, draft: Any) -> str | None:
    vocab, draft_vocab = target.get_vocab(), draft.get_vocab()
    if len(vocab) != len(draft_vocab):
        return f"{len(draft_vocab)} tokens against {len(vocab)}"
    if vocab != draft_vocab:
        token = next(token for token, index in sorted(vocab.items()) if draft_vocab.get(token) != index)
        return f"token {token!r} is {draft_vocab.get(token)} against {vocab[token]}"
    if sorted(target.all_special_ids) != sorted(draft.all_special_ids):
        return f"special tokens {sorted(draft.all_special_ids)} against {sorted(target.all_special_ids)}"
    for probe in _PROBES:
        ids, draft_ids = target.encode(probe), draft.encode(probe)
        if ids != draft_ids:
            return f"{probe!r} becomes {len(draft_ids)} tokens against {len(ids)}, not the same ones"
    return None


def _require_trimmable(role: str, cache: Sequence[Any]) -> None:
    from mlx_lm.models.cache import can_trim_prompt_cache

    if not can_trim_prompt_cache(list(cache)):
        kinds = sorted({type(layer).__name__ for layer in cache if not layer.is_trimmable()})
        raise EngineError(
            FaultKind.cache_not_trimmable,
            f"the {role}'s cache ({', '.join(kinds)}) cannot take back rejected tokens",
            remedy="choose a model with full attention, or engine=mlx_lm",
        )
