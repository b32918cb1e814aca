"""An engine of another package, made by following CONTRIBUTING.md alone: it repeats the question's words.

There is no model. What it shows is what a package has to hold: this module and an entry point.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from workers.engines.base import Engine, LoadInfo, TurnRequest, TurnResult, parse_settings, sha256_of_ids
from workers.protocol import Evidence
from workers.settings import EngineSettings, at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of the parrot."""

    repeats: int = setting(3, "How often it repeats the question.", limit=at_least(1), word="times")
    last_words: int | None = setting(None, "Repeat so many words of the end. null: all.", limit=at_least(1))

    def conflicts(self) -> Iterator[tuple[str, str]]:
        if self.last_words is not None and self.last_words > 1000:
            yield "last_words", "is more than a parrot remembers: give at most 1000"


class Toy(Engine):
    """A parrot: it repeats the question's words, one per token."""

    settings_kind = Settings

    def load(self) -> LoadInfo:
        self._own = parse_settings(Settings, self.settings, engine="toy")
        self._words: list[str] = []
        return LoadInfo(engine_version="1.0", engine_setting={"times": self._own.repeats})

    def start_conversation(self) -> None:
        self._words = []

    def prepare(self, request: TurnRequest) -> None:
        said = [word for message in request.messages for word in message["content"].split()]
        question = request.messages[-1]["content"].split()
        whole = question[-(self._own.last_words or len(question)) :] * self._own.repeats
        self._prompt_ids = [zlib.crc32(word.encode()) for word in said]
        self._answer = whole[: request.max_tokens]
        self._cut = len(whole) > request.max_tokens
        self._words = []

    def stream(self) -> Iterator[None]:
        for word in self._answer:
            self._words.append(word)
            yield

    def finish(self) -> TurnResult:
        return TurnResult(
            token_ids=[zlib.crc32(word.encode()) for word in self._words],
            text=" ".join(self._words),
            finish_reason="length" if self._cut else "stop",
            prompt_tokens=len(self._prompt_ids),
            cached_tokens=0,
            prompt_sha256=sha256_of_ids(self._prompt_ids),
            evidence=[
                Evidence(
                    mechanism="plain",
                    requested=False,
                    engaged=False,
                    useful=False,
                    source="toy",
                    text="it repeats word for word and drafts nothing",
                )
            ],
        )
