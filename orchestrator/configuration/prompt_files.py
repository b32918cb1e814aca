"""Prompts in the forms of other programs, turned into bodies of our own form (`workload`). Pure.

Recognised by the first entry: ShareGPT's conversations, MT-bench's questions, OpenAI's batch requests, Alpaca's
instructions, and objects that hold a prompt as a text. A table is recognised by its file's name. An entry that cannot
be asked is left out, with the reason.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from orchestrator.errors import InputError

TEXT_FILES = (".txt", ".md")
_TABLES = {".csv": ",", ".tsv": "\t"}
_TEXT_COLUMNS = ("prompt", "question", "instruction", "text", "input", "content")
_CLASS_COLUMNS = ("class", "category")
_ROLES = {"human": "user", "user": "user", "system": "system"}
_ANSWERERS = ("gpt", "chatgpt", "assistant", "model", "bing", "bard", "claude")
_CHAT = "/v1/chat/completions"
_MOST_FIELD = 2**24  # characters of a table's cell

Body = dict[str, Any]


class LeftOut(Exception):  # not an error: the entry's reason
    """An entry that cannot be asked; the text says of one entry what it is or does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of entries."""

    words: str
    fits: Callable[[Mapping[str, Any]], bool]
    body: Callable[[Mapping[str, Any]], Body]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The entries of a file, in our own form.

    Attributes:
        words: what the file was taken for.
        bodies: with their places in the file, counted from 1.
        left_out: the reasons, with how many entries each concerns.
    """

    words: str
    bodies: Sequence[tuple[int, Body]]
    left_out: Mapping[str, int]

    def note(self, file: str) -> str:
        """Say in one line what was read and what was left out."""
        total = len(self.bodies) + sum(self.left_out.values())
        read = f"{file}: read as {self.words}, {len(self.bodies)} of {total}"
        reasons = ", ".join(f"{reason} ({count})" for reason, count in self.left_out.items())
        return f"{read}; left out: {reasons}" if reasons else read


def form_of(entry: Any) -> Form | None:
    """The foreign form of an entry; None if it has our own, or none that is known."""
    if not isinstance(entry, Mapping) or "messages" in entry:
        return None
    return next((form for form in _FORMS if form.fits(entry)), None)


def converted(form: Form, entries: Sequence[tuple[int, Any]]) -> Entries:
    """Turn the entries of a file into our own form; each is at its place in the file."""
    bodies, left_out = [], Counter[str]()
    for place, entry in entries:
        try:
            if not isinstance(entry, Mapping) or not form.fits(entry):
                raise LeftOut("is of another form")
            bodies.append((place, form.body(entry)))
        except LeftOut as reason:
            left_out[str(reason)] += 1
    return Entries(words=form.words, bodies=bodies, left_out=left_out)


def is_table(file: str) -> bool:
    """Return whether a file is a table by its name."""
    return PurePath(file).suffix.lower() in _TABLES


def table(text: str, *, file: str, column: str | None) -> Entries:
    """The prompts in one column of a table with a header; the columns `class` or `category` and `id` are taken too.

    Raises:
        InputError: no header, or no such column, or several that it could be.
    """
    csv.field_size_limit(_MOST_FIELD)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_TABLES[PurePath(file).suffix.lower()], strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        chosen = _column(header, file, column)
        bodies, left_out = [], Counter[str]()
        for number, row in enumerate(rows, start=2):
            cells = dict(zip(header, row, strict=False))
            if cells.get(chosen, "").strip():
                bodies.append((number, _row(cells, chosen)))
            elif row:
                left_out["has no text in it"] += 1
    except csv.Error as error:
        raise InputError(
            f"{file}, line {rows.line_num}: is not a table ({error}); write it as CSV with a header"
        ) from error
    return Entries(words=f"a table, column {chosen!r}", bodies=bodies, left_out=left_out)


def _column(header: Sequence[str], file: str, wanted: str | None) -> str:
    listed = ", ".join(header) or "none"
    if wanted is not None:
        if wanted not in header:
            raise InputError(f"{file}: has no column {wanted!r}; its columns are {listed}")
        return wanted
    found = [name for name in header if name.lower() in _TEXT_COLUMNS]
    if len(header) == 1:
        return header[0]
    if len(found) != 1:
        raise InputError(f"{file}: which column holds the prompts? Set workload.column=NAME; its columns are {listed}")
    return found[0]


def _row(cells: Mapping[str, str], column: str) -> Body:
    found = {name.lower(): value.strip() for name, value in cells.items() if value.strip() and name != column}
    group = next((found[name] for name in _CLASS_COLUMNS if name in found), None)
    return _asked([cells[column]]) | ({} if group is None else {"class": group}) | _only(found, "id")


def text_file(name: PurePath, content: str) -> Body:
    """One file of a folder: its text is the prompt, its place the id, the folder above it the class.

    Raises:
        LeftOut: it is empty.
    """
    if not content.strip():
        raise LeftOut("is empty")
    return _asked([content]) | {"id": str(name)} | ({"class": name.parts[0]} if len(name.parts) > 1 else {})


def _asked(texts: Sequence[str], system: str | None = None) -> Body:
    """A conversation of these questions. Recorded answers are not part of it: the model under test gives its own."""
    turns = [[{"role": "user", "content": text}] for text in texts]
    if system is not None:
        turns[0].insert(0, {"role": "system", "content": system})
    return {"turns": turns}


def _only(body: Mapping[str, Any], *names: str) -> Body:
    return {name: str(body[name]) for name in names if body.get(name) not in (None, "")}


def _sharegpt(entry: Mapping[str, Any]) -> Body:
    questions: list[str] = []
    system: str | None = None
    for message in _messages_of(entry):
        speaker, text = message.get("from"), message.get("value")
        if not isinstance(text, str) or not text.strip():
            raise LeftOut("holds an empty message")
        if speaker in _ANSWERERS:
            if not questions:
                raise LeftOut("begins with an answer")
        elif speaker not in _ROLES:
            raise LeftOut("holds a message of a tool or another speaker")
        elif _ROLES[speaker] == "system":
            system = text
        else:
            questions.append(text)
    if not questions:
        raise LeftOut("holds no question")
    return _asked(questions, system) | _only(entry, "id")


def _messages_of(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for message in entry["conversations"]:
        if not isinstance(message, Mapping):
            raise LeftOut("holds an empty message")
        yield message


def _mt_bench(entry: Mapping[str, Any]) -> Body:
    if not all(isinstance(turn, str) and turn.strip() for turn in entry["turns"]):
        raise LeftOut("holds an empty turn")
    group = entry.get("category")
    return (
        _asked(entry["turns"])
        | ({"id": f"question {entry['question_id']}"} if "question_id" in entry else {})
        | ({"class": group} if isinstance(group, str) and group.strip() else {})
    )


def _batch(entry: Mapping[str, Any]) -> Body:
    body = entry["body"]
    if entry.get("url", _CHAT) != _CHAT or not isinstance(body.get("messages"), list):
        raise LeftOut("is not a chat request")
    if body.get("tools") or any(not _is_text(message) for message in body["messages"]):
        raise LeftOut("uses tools, images or other messages than text")
    if not body["messages"] or body["messages"][-1]["role"] != "user":
        raise LeftOut("does not end with the user's message")
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    messages = [{"role": message["role"], "content": message["content"]} for message in body["messages"]]
    return (
        {"messages": messages} | ({} if limit is None else {"max_tokens": limit}) | _renamed(entry, "custom_id", "id")
    )


def _is_text(message: Any) -> bool:
    if not isinstance(message, Mapping) or message.get("role") not in ("system", "user", "assistant"):
        return False
    content = message.get("content")
    if isinstance(content, list):
        return bool(content) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in content)
    return isinstance(content, str) and bool(content.strip())


def _renamed(body: Mapping[str, Any], old: str, new: str) -> Body:
    return {new: str(body[old])} if body.get(old) not in (None, "") else {}


def _alpaca(entry: Mapping[str, Any]) -> Body:
    instruction, more = entry["instruction"], entry.get("input") or ""
    if not isinstance(instruction, str) or not instruction.strip() or not isinstance(more, str):
        raise LeftOut("has no instruction")
    return _asked([f"{instruction}\n\n{more}" if more.strip() else instruction])


def _text_under_a_key(entry: Mapping[str, Any]) -> Body:
    text = next(entry[key] for key in ("prompt", "question") if key in entry)
    if not isinstance(text, str) or not text.strip():
        raise LeftOut("has no text in it")
    group = next((entry[key] for key in _CLASS_COLUMNS if isinstance(entry.get(key), str) and entry[key].strip()), None)
    return _asked([text]) | ({} if group is None else {"class": group}) | _only(entry, "id")


_FORMS = (
    Form(
        words="ShareGPT conversations, their questions alone",
        fits=lambda entry: isinstance(entry.get("conversations"), list),
        body=_sharegpt,
    ),
    Form(
        words="MT-bench questions",
        fits=lambda entry: (
            isinstance(entry.get("turns"), list)
            and bool(entry["turns"])
            and ("question_id" in entry or isinstance(entry["turns"][0], str))
        ),
        body=_mt_bench,
    ),
    Form(
        words="OpenAI batch requests, their messages and lengths alone",
        fits=lambda entry: isinstance(entry.get("body"), Mapping) and ("custom_id" in entry or "url" in entry),
        body=_batch,
    ),
    Form(words="Alpaca instructions", fits=lambda entry: "instruction" in entry, body=_alpaca),
    Form(
        words="prompts as texts",
        fits=lambda entry: "prompt" in entry or "question" in entry,
        body=_text_under_a_key,
    ),
)
