"""`mlx_lm.server` without a draft: mlx-lm as its users reach it, over HTTP."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.base import LoadInfo, parse_settings
from workers.engines.mlx_common import KV_BITS
from workers.engines.mlx_probes import CONTEXT_TOKENS
from workers.engines.server_launch import LaunchedEngine, LaunchSettings, Widths, require_installed, served_folder
from workers.engines.server_request import TEXT_PATH
from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.http.answer import Answer
from workers.http.reply import Reply
from workers.protocol import Regenerate, Regenerated, Scored, ScoreTokens, TokenScore
from workers.settings import at_least, setting
from workers.supervision.server_process import HOST, ServerSpec

TOP_TOKENS = 10  # per place; the server takes at most eleven


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LaunchSettings):
    """Settings of `mlx_lm.server`."""

    server_python: str | None = setting(None, "Interpreter of the server's environment. null: the worker's.")
    prefix_cache: bool = setting(
        True, "Keep the prompt cache of one conversation.", word="--prompt-cache-size: 1 if true, else 0"
    )
    prefill_step_size: int = setting(
        2048, "Most tokens of the prompt in one prefill pass.", limit=at_least(1), word="--prefill-step-size"
    )
    kv_bits: int | None = setting(
        None, "Quantise the cache to so many bits. null: it stays as it is.", limit=KV_BITS, word="--kv-bits"
    )
    kv_group_size: int = setting(
        64, "Values that share a scale in the quantised cache.", limit=at_least(1), word="--kv-group-size"
    )
    quantized_kv_start: int = setting(
        5000,
        "Length of the conversation from which the cache is quantised.",
        limit=at_least(0),
        unit="tokens",
        word="--quantized-kv-start",
    )


class MlxLmServer(LaunchedEngine):
    """See the module."""

    settings_kind = Settings
    needs = ("mlx-lm", "mlx")
    preset_name = "mlx_lm_server"
    title = "mlx_lm.server"
    model = "default_model"  # the one it was started with

    def _settings(self) -> Settings:
        return parse_settings(Settings, self.settings, engine="mlx_lm_server")

    def _open(self) -> LoadInfo:
        if self._sampling.ignore_eos:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"sampling {self._sampling.name}: mlx_lm.server cannot ignore the end of the text",
                remedy="set sampling.ignore_eos=false",
            )
        return super()._open()

    def _python(self) -> str:
        return self._settings().server_python or sys.executable

    def _command(self, port: int, folder: Path) -> ServerSpec:
        own, python = self._settings(), self._python()
        require_installed(python, "mlx-lm", install="pip install mlx-lm")
        model, _ = served_folder(self.checkpoint, folder)
        if self._tokenizer is None:
            self._use_tokenizer(model)
        command = [python, "-m", "mlx_lm", "server", "--model", str(model), "--host", HOST, "--port", str(port)]
        # One conversation at a time: of more entries, those of earlier trials would answer a repeated prompt.
        command += ["--prompt-cache-size", "1" if own.prefix_cache else "0"]
        command += ["--prefill-step-size", str(own.prefill_step_size)]
        if own.kv_bits is not None:
            command += ["--kv-bits", str(own.kv_bits), "--kv-group-size", str(own.kv_group_size)]
            command += ["--quantized-kv-start", str(own.quantized_kv_start)]
        command += self._draft_options(folder)
        return ServerSpec(title=self.title, command=command, port=port, environment={"PYTHONSAFEPATH": "1"})

    def _draft_options(self, folder: Path) -> Sequence[str]:
        return ()

    def _widths(self) -> Widths:
        return Widths()

    def _after_ready(self, first: Answer) -> Sequence[str]:
        """Read the versions of mlx-lm and mlx, with which the server's fingerprint begins."""
        fingerprint = str(first.response.get("system_fingerprint", ""))
        self.server_version = fingerprint.split("-")[0] or None
        return [f"server: {fingerprint}"] if fingerprint else []

    def start_conversation(self) -> None:
        """Another text takes the place of the last conversation in the prompt cache."""
        super().start_conversation()
        own = self._settings()
        if own.prefix_cache and own.attach is None and self._client is not None:
            self._require_server()
            body = b'{"model": "default_model", "prompt": ".", "max_tokens": 1, "temperature": 0.0, "stream": true}'
            for _ in self._connected().stream(TEXT_PATH, body, Reply(answer=Answer()), self.clock):
                pass

    # ---- probes: asking for log-probabilities takes no other path through the server, with a draft or without ----

    def regenerate(self, request: Regenerate) -> Regenerated:
        choice = self._whole_choice(
            request.messages,
            request.prompt_sha256,
            budget_s=request.budget_s,
            max_tokens=request.max_tokens,
            logprobs=True,
        )
        places = _places(choice)
        try:
            token_ids, logprobs = [int(each["id"]) for each in places], [float(each["logprob"]) for each in places]
        except (LookupError, TypeError, ValueError):
            raise ProbeUnsupported("the server's log-probabilities name no token ids") from None
        return Regenerated(request_id=request.request_id, text=_text(choice), token_ids=token_ids, logprobs=logprobs)

    def score(self, request: ScoreTokens) -> Scored:
        """Score by the server's own figures. It cannot run passes of other widths."""
        place = len(request.token_ids)
        again = Regenerate(
            request_id=request.request_id,
            messages=request.messages,
            prompt_sha256=request.prompt_sha256,
            max_tokens=place + 1,
            budget_s=request.budget_s,
        )
        if self.regenerate(again).token_ids[:place] != request.token_ids:
            raise ProbeUnsupported("a repeated request gave other tokens")
        self.start_conversation()
        choice = self._whole_choice(
            request.messages,
            request.prompt_sha256,
            budget_s=request.budget_s,
            max_tokens=place + 1,
            top_logprobs=TOP_TOKENS,
        )
        by_token = _likely(_places(choice), place)
        missing = [token for token in request.rivals if token not in by_token]
        if missing:
            raise ProbeUnsupported(
                f"token {missing[0]} is not among the {TOP_TOKENS} that the server sends for a place"
            )

        def scored(token: int) -> TokenScore:
            return TokenScore(token_id=token, text=self._decoded([token]), logprob=by_token[token])

        likeliest = sorted(by_token, key=lambda token: -by_token[token])
        return Scored(
            request_id=request.request_id,
            top=[scored(token) for token in likeliest[: request.most_likely]],
            rivals=[scored(token) for token in request.rivals],
            context_text=self._decoded(request.token_ids[-CONTEXT_TOKENS:]),
            changes=[],
            compared_places=1,
        )

    def _decoded(self, token_ids: Sequence[int]) -> str:
        if self._tokenizer is None or not token_ids:
            return ""
        text: str = self._tokenizer.decode(list(token_ids))
        return text


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    return text if isinstance(text, str) else ""


def _places(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The server's log-probabilities of each token.

    Raises:
        ProbeUnsupported: nothing.
    """
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(content, list) or not content:
        raise ProbeUnsupported("the server sent no log-probabilities")
    return content


def _likely(places: Sequence[Mapping[str, Any]], place: int) -> dict[int, float]:
    """Log-probabilities at the place, by token. The server's order of them means nothing."""
    try:
        return {int(each["id"]): float(each["logprob"]) for each in places[place]["top_logprobs"]}
    except (LookupError, TypeError, ValueError):
        raise ProbeUnsupported("the server sent no likely tokens for the place") from None
