"""Workloads as prompts: from a JSONL file, or a generated document with two turns of questions.

A JSONL line is one conversation in OpenAI's message form:

    {"class": "maths", "messages": [{"role": "user", "content": "..."}]}
    {"class": "chat", "max_tokens": 50, "turns": [[{"role": "user", ...}], [{"role": "user", ...}]]}

A content is a text, or a list of parts of type text, which are joined. `messages` is answered once; `turns` holds, for
each answer, the messages added before it. Optional: `id`, `class` (default: the workload's name), `max_tokens`
(default: the workload's).
"""

import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.configuration.long_document import two_turn_messages
from orchestrator.errors import InputError
from orchestrator.plan import Prompt

_KEYS = ("id", "class", "max_tokens", "messages", "turns")
_MOST_BYTES = 256 * 2**20
_MOST_TOKENS = 1_000_000  # of one answer
_ROLES = ("system", "user", "assistant")

Turn = tuple[dict[str, str], ...]


def read_workload(workload: Mapping[str, Any]) -> tuple[Prompt, ...]:
    """The prompts of one resolved conf.schema.WorkloadConfig, whose file is an absolute path.

    Raises:
        InputError: the file is missing or not of this form, with the line's number.
    """
    if workload["kind"] == "two_turns":
        return (_two_turns(workload),)
    if workload["file"] is None:
        raise InputError(f"workload {workload['name']}: names no prompt file; give one: workload.file=my.jsonl")
    path = Path(workload["file"])
    return parse_prompts(_text(path), where=str(path), name=workload["name"], max_tokens=workload["max_tokens"])


def parse_prompts(text: str, *, where: str, name: str, max_tokens: int) -> tuple[Prompt, ...]:
    """The prompts of a JSONL text; blank lines are skipped.

    Args:
        where: the file, for messages.
        name: the workload's name, which begins the ids that the lines do not give.
        max_tokens: the default for lines that do not set it.

    Raises:
        InputError: naming file, line and remedy.
    """
    prompts: list[Prompt] = []
    first_line: dict[str, int] = {}
    # Not splitlines(): JSON text may hold U+2028 and its like, which end no line of JSONL.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        prompt = _prompt(line, f"{where}, line {number}", name, len(prompts), max_tokens)
        if (earlier := first_line.setdefault(prompt.id, number)) != number:
            raise InputError(f"{where}, line {number}: id {prompt.id!r} is used on line {earlier} too; rename one")
        prompts.append(prompt)
    if not prompts:
        raise InputError(f"{where}: holds no prompts; write one JSON object per line")
    return tuple(prompts)


def _text(path: Path) -> str:
    try:
        about = path.stat()
        if stat.S_ISREG(about.st_mode) and about.st_size > _MOST_BYTES:
            raise InputError(f"{path}: {about.st_size / 1e6:.0f} MB are too much for a file of prompts; give fewer")
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise InputError(f"{path}: is not a regular file; give a JSONL file of prompts: workload.file=my.jsonl")
        content = path.read_bytes()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {number}: not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a JSONL file of prompts: workload.file=my.jsonl") from error


def _prompt(line: str, where: str, name: str, index: int, max_tokens: int) -> Prompt:
    body = _object(line, where)
    limit = body.get("max_tokens", max_tokens)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MOST_TOKENS:
        raise InputError(f"{where}: max_tokens is {limit!r}; give a whole number of at least 1, at most {_MOST_TOKENS}")
    return Prompt(
        id=_word(body, "id", where, default=f"{name}/{index}"),
        workload=name,
        prompt_class=_word(body, "class", where, default=name),
        turns=tuple(_turns(body, where)),
        max_tokens=limit,
    )


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        body = json.loads(line, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg}, column {error.colno}); write one object per line") from error
    except _DoubledError as error:
        raise InputError(f"{where}: {error}; remove one") from error
    except (ValueError, RecursionError) as error:  # no end of digits or of brackets
        why = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        raise InputError(f"{where}: {why}; write one object per line") from error
    if not isinstance(body, dict):
        raise InputError(f"{where}: not a JSON object; write " + '{"class": ..., "messages": [...]}')
    if unknown := [key for key in body if key not in _KEYS]:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; valid: {', '.join(_KEYS)}")
    if ("messages" in body) == ("turns" in body):
        raise InputError(f"{where}: give either messages (one answer) or turns (several)")
    return body


class _DoubledError(Exception):
    pass


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that occurs twice: JSON readers silently take the last one."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DoubledError(f"the key {key!r} appears twice")
        found[key] = value
    return found


def _word(body: Mapping[str, Any], key: str, where: str, *, default: str) -> str:
    value = body.get(key, default)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {key} is {value!r}; give a non-empty text")
    _require_characters(value, f"{where}: {key}")
    return value


def _require_characters(text: str, what: str) -> None:
    if any(0xD800 <= ord(character) < 0xE000 for character in text):
        raise InputError(f"{what} holds half a surrogate pair; write the character itself")


def _turns(body: Mapping[str, Any], where: str) -> Iterator[Turn]:
    turns = body["turns"] if "turns" in body else [body["messages"]]
    if not isinstance(turns, list) or not turns:
        raise InputError(f"{where}: turns is not a list of message lists")
    for turn in turns:
        if not isinstance(turn, list) or not turn:
            raise InputError(f"{where}: no messages; give a list such as " + '[{"role": "user", "content": "..."}]')
        messages = tuple(_message(message, where) for message in turn)
        if messages[-1]["role"] != "user":
            raise InputError(f"{where}: the last message is the {messages[-1]['role']}'s; a model answers the user's")
        yield messages


def _message(message: Any, where: str) -> dict[str, str]:
    if not isinstance(message, dict) or set(message) != {"role", "content"}:
        raise InputError(f"{where}: a message has exactly role and content, not {json.dumps(message)[:80]}")
    role = message["role"]
    if role not in _ROLES:
        raise InputError(f"{where}: unknown role {role!r}; valid: {', '.join(_ROLES)}")
    content = _content(message["content"], role, where)
    if not content.strip():
        raise InputError(f"{where}: the {role}'s content is empty or not text")
    _require_characters(content, f"{where}: the {role}'s content")
    return {"role": role, "content": content}


def _content(content: Any, role: str, where: str) -> str:
    """A text as it is; of a list of parts, OpenAI's other form, the texts one after the other."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise InputError(f"{where}: the {role}'s content is empty or not text")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or set(part) != {"type", "text"} or not isinstance(part["text"], str):
            example = '{"type": "text", "text": "..."}'
            shown = json.dumps(part)[:60]
            raise InputError(
                f"{where}: the {role}'s content is empty or not text: its part {shown} is not like {example}"
            )
        texts.append(part["text"])
    return "".join(texts)


def _two_turns(workload: Mapping[str, Any]) -> Prompt:
    name = workload["name"]
    turns: Sequence[Turn] = two_turn_messages(tokens=workload["document_tokens"], seed=workload["seed"])
    return Prompt(
        id=f"{name}/0", workload=name, prompt_class="long", turns=tuple(turns), max_tokens=workload["max_tokens"]
    )
