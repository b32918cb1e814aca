"""The prompt cache that the turns of one conversation share."""

from collections.abc import Callable, Sequence
from typing import Any


class ConversationCache:
    """The state of one conversation: a prompt cache per model, and the tokens that are in it.

    After a generation the models may hold different lengths of the same tokens: a draft model has not processed its own
    last proposal, and no model a token that was sampled last in a verify step. The caches' own offsets show it.

    Args:
        makers: what makes an empty prompt cache of each model.
    """

    def __init__(self, makers: Sequence[Callable[[], list[Any]]]) -> None:
        self._makers = makers
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._parts = [make() for make in self._makers]
        self._tokens: list[int] = []

    @property
    def layers(self) -> list[Any]:
        """The prompt cache to hand to mlx-lm: of one model the list itself, since mlx-lm replaces entries of it when
        it quantises; of two models both lists in one."""
        if len(self._parts) == 1:
            return self._parts[0]
        return [layer for part in self._parts for layer in part]

    def reuse(self, prompt_ids: Sequence[int]) -> int:
        """Keep the longest common prefix with the prompt, trim the rest away, and return the prefix's length.

        At least one token of the prompt is left to process. A cache that cannot be trimmed is reused only if all of it
        is a prefix of the prompt; otherwise everything is forgotten.
        """
        from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache

        common = _common_prefix_length(self._tokens, prompt_ids)
        held = [_held_tokens(part, len(self._tokens)) for part in self._parts]
        kept = min(common, len(prompt_ids) - 1, *held)
        for part, length in zip(self._parts, held, strict=True):
            if length > kept and not can_trim_prompt_cache(part):
                self.reset()
                return 0
            trim_prompt_cache(part, length - kept)
        self._tokens = list(prompt_ids[:kept])
        return kept

    def extend(self, token_ids: Sequence[int]) -> None:
        """The conversation is now these tokens, of which the caches hold as many as their offsets say."""
        self._tokens = list(token_ids)


def _held_tokens(part: Sequence[Any], fallback: int) -> int:
    """Tokens in a model's cache. Caches without an offset (recurrent layers) hold all that was yielded."""
    offsets = [int(layer.offset) for layer in part if isinstance(getattr(layer, "offset", None), int)]
    return min([*offsets, fallback])


def _common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
