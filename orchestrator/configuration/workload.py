"""Workloads as prompts: from a file, a folder, a generated document with two turns, or one question at several depths.

Files of other programs are read by `prompt_files`. In our own form a line of JSONL is one conversation:

    {"class": "maths", "messages": [{"role": "user", "content": "..."}]}
    {"class": "chat", "max_tokens": 50, "turns": [[{"role": "user", ...}], [{"role": "user", ...}]]}

A content is a text, or a list of parts of type text, which are joined. `messages` is answered once; `turns` holds, for
each answer, the messages added before it. Optional: `id`, `class` (default: the workload's name), `max_tokens`
(default: the workload's).
"""

import json
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.configuration import prompt_files
from orchestrator.configuration.long_document import depth_messages, two_turn_messages, write_report
from orchestrator.errors import InputError
from orchestrator.plan import CHARACTERS_PER_TOKEN, Prompt

_KEYS = ("id", "class", "max_tokens", "messages", "turns")
_MOST_BYTES = 256 * 2**20
_MOST_FILES = 10_000
_MOST_TOKENS = 1_000_000  # of one answer
_ROLES = ("system", "user", "assistant")

Turn = tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPrompts:
    """The prompts of a workload, and in words what its file was taken for and what was left out."""

    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()


def read_workload(workload: Mapping[str, Any]) -> ReadPrompts:
    """The prompts of one resolved conf.schema.WorkloadConfig, whose file is an absolute path.

    Raises:
        InputError: the file is missing or not of a known form, with the line's number.
    """
    if workload["kind"] == "two_turns":
        return ReadPrompts(prompts=(_two_turns(workload),))
    if workload["kind"] == "depths":
        return ReadPrompts(prompts=tuple(_depths(workload)))
    if workload["file"] is None:
        raise InputError(f"workload {workload['name']}: names no prompt file; give one: workload.file=my.jsonl")
    path = Path(workload["file"])
    name, max_tokens, column = workload["name"], workload["max_tokens"], workload.get("column")
    if column is not None and not prompt_files.is_table(path.name):
        raise InputError(f"{path}: workload.column={column} belongs to a CSV file; remove it, or name the file .csv")
    if path.is_dir():
        found = _noted(_folder(path), str(path), name, max_tokens, place="file")
    elif prompt_files.is_table(path.name):
        entries = prompt_files.table(_text(path), file=str(path), column=column)
        found = _noted(entries, str(path), name, max_tokens, place="line")
    else:
        found = read_text(_text(path), where=str(path), name=name, max_tokens=max_tokens)
    return _first(found, workload.get("first"), str(path))


def _first(found: ReadPrompts, count: int | None, where: str) -> ReadPrompts:
    if count is None or count >= len(found.prompts):
        return found
    note = f"{where}: the first {count} of {len(found.prompts)} prompts are taken"
    return ReadPrompts(prompts=found.prompts[:count], notes=(*found.notes, note))


def read_text(text: str, *, where: str, name: str, max_tokens: int) -> ReadPrompts:
    """The prompts of a file's text: a JSON list or JSONL, in our own form or another program's.

    Args: as `parse_prompts`.

    Raises:
        InputError: as `parse_prompts`.
    """
    listed = text.lstrip().startswith("[")
    entries = list(enumerate(_json(text, where), start=1)) if listed else _foreign_lines(text, where)
    if listed and not entries:
        raise InputError(f"{where}: holds no prompts; write one JSON object per line")
    form = prompt_files.form_of(entries[0][1]) if entries else None
    if form is not None:
        return _noted(
            prompt_files.converted(form, entries), where, name, max_tokens, place="entry" if listed else "line"
        )
    if not listed:
        return ReadPrompts(prompts=parse_prompts(text, where=where, name=name, max_tokens=max_tokens))
    lines = "\n".join(json.dumps(entry) for _, entry in entries)
    return ReadPrompts(prompts=parse_prompts(lines, where=f"{where}, as a list", name=name, max_tokens=max_tokens))


def _foreign_lines(text: str, where: str) -> list[tuple[int, Any]]:
    """Each line's value if the first line has another program's form, else nothing."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    try:
        if not lines or prompt_files.form_of(_json(lines[0][1], where)) is None:
            return []
    except InputError:
        return []  # our own form's reader says what is wrong
    return [(number, _json(line, f"{where}, line {number}")) for number, line in lines]


def _folder(path: Path) -> prompt_files.Entries:
    """The text files of a folder and of the folders in it, in the order of their names.

    Raises:
        InputError: one cannot be read, or is not UTF-8.
    """
    bodies, left_out, size_bytes = [], Counter[str](), 0
    for number, file in enumerate(_files(path), start=1):
        try:
            if file.suffix.lower() not in prompt_files.TEXT_FILES:
                raise prompt_files.LeftOut(f"is not {' or '.join(prompt_files.TEXT_FILES)}")
            content = _text(file)
            bodies.append((number, prompt_files.text_file(file.relative_to(path), content)))
        except prompt_files.LeftOut as reason:
            left_out[str(reason)] += 1
            continue
        size_bytes += len(content.encode())
        if size_bytes > _MOST_BYTES:
            raise InputError(f"{path}: its texts are more than {_MOST_BYTES / 1e6:.0f} MB; give fewer")
    return prompt_files.Entries(words="a folder of text files", bodies=bodies, left_out=left_out)


def _files(folder: Path) -> list[Path]:
    """The files of a folder and of the folders in it; a name that begins with a dot is hidden."""
    found: list[Path] = []
    for each in folder.rglob("*"):
        if each.is_file() and not any(part.startswith(".") for part in each.relative_to(folder).parts):
            found.append(each)
        if len(found) > _MOST_FILES:
            raise InputError(f"{folder}: holds more than {_MOST_FILES} files; give a folder of prompts alone")
    return sorted(found)


def _noted(entries: prompt_files.Entries, where: str, name: str, max_tokens: int, *, place: str) -> ReadPrompts:
    """Another program's entries as prompts; one that is not valid is left out, and a repeated id is replaced."""
    prompts: list[Prompt] = []
    taken: set[str] = set()
    left_out = Counter(entries.left_out)
    for number, body in entries.bodies:
        own = body if body.get("id") not in taken else {key: body[key] for key in body if key != "id"}
        try:
            prompt = _made(own, f"{place} {number}", name, len(prompts), max_tokens)
        except InputError as error:
            left_out[f"is not a valid prompt ({error})"] += 1
            continue
        taken.add(prompt.id)
        prompts.append(prompt)
    note = replace(entries, bodies=entries.bodies[: len(prompts)], left_out=left_out).note(where)
    if not prompts:
        raise InputError(f"{note}; no prompt is left")
    return ReadPrompts(prompts=tuple(prompts), notes=(note,))


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


def _text(path: Path, *, wanted: str = "a JSONL file of prompts: workload.file=my.jsonl") -> str:
    try:
        about = path.stat()
        if stat.S_ISREG(about.st_mode) and about.st_size > _MOST_BYTES:
            raise InputError(f"{path}: {about.st_size / 1e6:.0f} MB are too much for a workload; give a smaller file")
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise InputError(f"{path}: is not a regular file; give {wanted}")
        content = path.read_bytes()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {number}: not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give {wanted}") from error


def _prompt(line: str, where: str, name: str, index: int, max_tokens: int) -> Prompt:
    return _made(_object(line, where), where, name, index, max_tokens)


def _made(body: Mapping[str, Any], where: str, name: str, index: int, max_tokens: int) -> Prompt:
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


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg}, column {error.colno}); write one object per line") from error
    except _DoubledError as error:
        raise InputError(f"{where}: {error}; remove one") from error
    except (ValueError, RecursionError) as error:  # no end of digits or of brackets
        why = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        raise InputError(f"{where}: {why}; write one object per line") from error


def _object(line: str, where: str) -> dict[str, Any]:
    body = _json(line, where)
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


def depth_class(tokens: int) -> str:
    """The class of the prompts at one depth."""
    return f"depth {tokens}"


def _depths(workload: Mapping[str, Any]) -> Iterator[Prompt]:
    name, depths = workload["name"], workload["depths"]
    document = _document(workload, characters=round(depths[-1] * CHARACTERS_PER_TOKEN))
    for tokens in depths:
        yield Prompt(
            id=f"{name}/{tokens}",
            workload=name,
            prompt_class=depth_class(tokens),
            turns=(depth_messages(tokens=tokens, document=document),),
            max_tokens=workload["max_tokens"],
        )


def _document(workload: Mapping[str, Any], *, characters: int) -> str:
    """A text of at least this many characters, the user's own or a generated one."""
    if workload["file"] is None:
        return write_report(characters=characters, seed=workload["seed"]).text if characters else ""
    text = _text(Path(workload["file"]), wanted="a text file: workload.file=book.txt")
    if len(text) < characters:
        longest = int(len(text) / CHARACTERS_PER_TOKEN)
        raise InputError(
            f"{workload['file']}: holds about {longest:,} tokens, workload.depths reaches {workload['depths'][-1]:,};"
            f" give depths up to {longest} or a longer text"
        )
    return text
