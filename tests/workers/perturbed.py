"""Rounding as a GPU has it, which a CPU's does not show: passes of another width give slightly other logits."""

from typing import Any

import mlx.core as mx


class Perturbed:
    """A model whose logits move with the number of tokens in a pass, by at most `size` each; of one token, not at all.

    The shift is fixed for each width and token id, so an answer repeats itself.
    """

    def __init__(self, model: Any, *, size: float) -> None:
        self._model = model
        self._size = size

    def __call__(self, tokens: Any, cache: Any = None) -> Any:
        logits = self._model(tokens, cache=cache)
        width = tokens.shape[1]
        if width == 1 or cache is None:
            return logits
        return logits + self._size * mx.random.uniform(-1.0, 1.0, logits.shape[-1:], key=mx.random.key(width))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
