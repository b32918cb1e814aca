"""Requests to a server in OpenAI's format: the body, the key, the identity of a prompt."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workers.engines.base import TurnRequest, sha256_of_ids
from workers.errors import EngineError, FaultKind
from workers.masking import KNOWN
from workers.sampling import Sampling

CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"
_NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}  # left out: a server may be slower when it is sent them


def request_body(
    request: TurnRequest, *, model: str, sampling: Sampling, more: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The path and the body of a streamed request.

    Args:
        more: what this server takes beside the fields that every server takes.
    """
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body |= {name: getattr(sampling, name) for name, value in _NEUTRAL.items() if getattr(sampling, name) != value}
    if sampling.temperature > 0:
        body["seed"] = request.seed  # greedy decoding needs none, and some servers are slower with one
    body |= more
    if not sampling.chat_template:
        body["prompt"] = "\n".join(message["content"] for message in request.messages)
        return TEXT_PATH, body
    body["messages"] = [dict(message) for message in request.messages]
    if sampling.template_options:
        body["chat_template_kwargs"] = dict(sampling.template_options)
    return CHAT_PATH, body


def prompt_sha256(prompt_ids: Sequence[int] | None, messages: Sequence[Mapping[str, str]]) -> str:
    """The hash of the prompt's token ids where they are known, as for any engine; otherwise that of the messages."""
    if prompt_ids is not None:
        return sha256_of_ids(prompt_ids)
    text = json.dumps([dict(message) for message in messages], sort_keys=True)
    return hashlib.sha256(f"messages:{text}".encode()).hexdigest()


def key_from(variable: str | None) -> str | None:
    """The key in an environment variable. Only the variable's name is stored, never the key.

    Raises:
        EngineError: the variable is not set, or the value looks like a key itself.
    """
    if variable is None:
        return None
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise EngineError(
            FaultKind.unsupported_setting,
            "engine.api_key_env is not the name of a variable",
            remedy="put the key into an environment variable and give its name here",
        )
    key = os.environ.get(variable)
    if not key:
        raise EngineError(
            FaultKind.unsupported_setting, f"the environment has no variable {variable}", remedy="set it to the key"
        )
    KNOWN.add(key)  # a server may repeat it in whatever it says
    return key
