"""mlx-dspark's loops, stamped at the place where a reader of their stream would get the tokens.

Its hooks report every verify step, but not prefill's token. What it does after each evaluation, prefill's included,
is to detokenise the new tokens for its reader: the detokenizer that it is handed ticks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.engines.speculative import VerifyStep
from workers.stopwatch import Tick


class TickingDetokenizer:
    """A streaming detokenizer; the text is asked for once after each evaluation, then that is a tick.

    At the end mlx-dspark finalises and asks once more: no tick.
    """

    def __init__(self, detokenizer: Any, tick: Tick) -> None:
        self._detokenizer = detokenizer
        self._tick = tick
        self._final = False

    def add_token(self, token: int) -> None:
        self._detokenizer.add_token(token)

    def finalize(self) -> None:
        self._detokenizer.finalize()
        self._final = True

    @property
    def text(self) -> str:
        text = str(self._detokenizer.text)
        if not self._final:
            self._tick()
        return text


class TickingTokenizer:
    """The parts of a tokenizer that mlx-dspark uses: exactly the given end tokens, and a detokenizer that ticks.

    By itself it would also stop at tokens that are end markers in some family, where plain decoding goes on.
    """

    eos_token_id = None
    unk_token_id = None

    def __init__(self, tokenizer: Any, *, end_ids: frozenset[int], tick: Tick) -> None:
        self._tokenizer = tokenizer
        self._tick = tick
        self.eos_token_ids = set(end_ids)

    @property
    def detokenizer(self) -> TickingDetokenizer:
        return TickingDetokenizer(self._tokenizer.detokenizer, self._tick)

    def convert_tokens_to_ids(self, token: str) -> None:
        """Return None: there is no further end token."""
        return

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(token_ids))


class VerifySteps:
    """mlx-dspark's `on_round` hook."""

    def __init__(self) -> None:
        self.seen: list[VerifyStep] = []

    def __call__(self, *, drafted: int, accepted: int, source: str, **_: Any) -> None:
        self.seen.append(VerifyStep(drafted=int(drafted), accepted=int(accepted), source=source))


def read_nothing(text: str) -> None:
    """A reader of the stream: without one mlx-dspark does not detokenise until the end."""


def sampling_arguments(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling settings that mlx-dspark's loops take."""
    return {name: sampling[name] for name in ("temperature", "top_p", "top_k")}
