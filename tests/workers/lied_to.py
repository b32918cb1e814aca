"""The outcome of one generation of a lying server: the worker's own path, then the orchestrator's measures."""

from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.running.measures import flags, measure
from tests.workers.lying_server import COUNT_FLAGS, LIES, PROMPT, RATE_FLAGS, TEMPLATE_TOKENS
from workers.codec import decode, encode
from workers.engines.base import Engine
from workers.engines.openai_http import OpenaiHttp
from workers.errors import WorkerError
from workers.protocol import Generate, Generation, Message
from workers.worker import Worker

Outcome = Literal["right", "invalid", "flagged", "no_rate", "unknown", "admitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Outcome `admitted`: neither refused nor named, and not the truth."""

    outcome: Outcome
    words: str


def answers_to(name: str) -> set[Outcome]:
    """The allowed outcomes of a lie. If a busy machine lets chunks meet, honest answers lose their rate."""
    expected = LIES[name].expected
    return {"right", "no_rate"} if expected == "right" else {expected}


class Ear:
    """A channel that keeps what the worker sends, as it would arrive."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def send(self, message: Message) -> None:
        self.heard.append(decode(encode(message)))


def become_of(url: str, name: str, *, max_tokens: int = 64) -> Found:
    """Ask for one generation and classify it."""
    engine = OpenaiHttp(
        settings={
            "url": url, "model": name, "first_token_s": 5.0, "idle_s": 5.0, "preset": "llama_cpp",
            "mechanism": "draft_model" if "draft" in name or "accepted" in name else None,
        },
        checkpoint={"name": "served", "source": "hub", "hub_id": "owner/model"},
        draft=None,
        sampling={"name": "greedy", "temperature": 0.0},
    )  # fmt: skip
    engine.load()
    try:
        generation = _generation(engine, max_tokens)
    except WorkerError as error:
        return Found(outcome="invalid", words=str(error))
    finally:
        engine.close()
    return _classified(generation, max_tokens)


def _generation(engine: Engine, max_tokens: int) -> Generation:
    ear: Any = Ear()
    worker = Worker(ear, heartbeat_s=60.0)
    turns = [[{"role": "user", "content": PROMPT}]]
    request = Generate(request_id="r", turns=turns, max_tokens=max_tokens, seed=0)
    worker._converse(request, engine)  # noqa: SLF001 - what the worker does with a request, less its processes
    (generation,) = ear.heard
    return generation  # type: ignore[no-any-return]


def _classified(generation: Generation, max_tokens: int) -> Found:
    found = set(flags(generation, max_tokens=max_tokens))
    measures = measure(generation)
    words = f"{generation.tokens} tokens of {generation.prompt_tokens}, {measures.decode_tps} tok/s, {sorted(found)}"
    if found & COUNT_FLAGS:
        return Found(outcome="flagged", words=words)
    if measures.decode_tps is None and found & RATE_FLAGS:
        return Found(outcome="no_rate", words=words)
    if generation.evidence[0].requested and generation.evidence[0].engaged is not True:
        return Found(outcome="unknown", words=f"{words}: {generation.evidence[0].text}")
    counts = (generation.tokens, generation.prompt_tokens, generation.cached_tokens or 0)
    true = counts == (max_tokens, len(PROMPT.split()) + TEMPLATE_TOKENS, 0) and measures.decode_tps is not None
    return Found(outcome="right" if true else "admitted", words=words)
