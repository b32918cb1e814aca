"""A long document from a seed: the year book of a harbour that never was, full of facts that a question can ask for.

It stands for a long prompt. Filler that repeats itself would not do: a draft guesses it, and a cache compresses it, far
better than real text. So every sentence states something new, with names, figures and causes drawn from a grammar
(conf/prompts/report.toml). The draws come from SHA-256, so the text is the same on every machine and Python version.
"""

import datetime as dt
import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import conf
from orchestrator.plan import CHARACTERS_PER_TOKEN

GRAMMAR_FILE = Path(conf.__file__).parent / "prompts" / "report.toml"


CHARACTERS_A_CAST = 100_000
DEPTH_QUESTION = (
    "Explain in a few paragraphs how a harbour works: what pilots, tugs, cranes and warehouses do, from the moment that"
    " a ship comes in sight to the moment that it leaves."
)

_SLOT = re.compile(r"\{([a-z_]+)(?::(\d+)-(\d+))?\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeio]|u(?!n[ai]|s))")
_FIRST_DAY = dt.date(1931, 1, 5)
_SENTENCES_A_DAY = (4, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A document and its cast."""

    text: str
    cast: Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class Draws:
    """An endless stream of numbers that depends on the seed alone."""

    seed: int
    _block: int = 0
    _numbers: list[int] = field(default_factory=list)

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1; 64 bits leave no bias that would show in a text."""
        if not self._numbers:
            digest = hashlib.sha256(f"interlace|document|{self.seed}|{self._block}".encode("ascii")).digest()
            self._numbers = [int.from_bytes(digest[start : start + 8], "big") for start in range(0, 32, 8)]
            self._block += 1
        return self._numbers.pop() % bound

    def one_of(self, items: Sequence[str]) -> str:
        return items[self.below(len(items))]

    def between(self, low: int, high: int) -> int:
        """Draw a number between the ends, both included."""
        return low + self.below(high - low + 1)


def two_turn_messages(*, tokens: int, seed: int) -> tuple[tuple[dict[str, str], ...], ...]:
    """A conversation of two turns about a document of about this many tokens.

    Both questions need the whole text, so the second answer is quick only if the first one's prompt was cached.
    """
    report = write_report(characters=round(tokens * CHARACTERS_PER_TOKEN), seed=seed)
    named = {kind: [name for name in names if name in report.text] or names for kind, names in report.cast.items()}
    first = (
        f"{report.text}\n\nThat is the year book. From it, list everything that is said about {named['ship'][0]}, each "
        f"with its date, and then say who dealt with {named['place'][0]} and why."
    )
    second = (
        f"Now do the same for {named['ship'][-1]} and for {named['who'][-1]}, and say in two sentences what the two "
        "ships had in common."
    )
    system = {"role": "system", "content": "Answer from the text alone, and briefly."}
    return (system, {"role": "user", "content": first}), ({"role": "user", "content": second},)


def depth_messages(*, tokens: int, document: str) -> tuple[dict[str, str], ...]:
    """The same question after about this many tokens of a document; after 0 tokens the question stands alone.

    It can be answered without the document, so that answers are alike at all depths. Smaller depths are beginnings of
    larger ones: a cache that outlasts a conversation can hold the part that they share.
    """
    context = document[: round(tokens * CHARACTERS_PER_TOKEN)]
    before = f"{context}\n\nSo far the text.\n\n" if context else ""
    return ({"role": "user", "content": before + DEPTH_QUESTION},)


def write_report(*, characters: int, seed: int) -> Report:
    """A report of about this many characters, whole days only; at least one day."""
    grammar = _grammar()
    draws = Draws(seed=seed)
    # A longer book has more people in it: names that came back ever more often would be ever easier to guess.
    cast = _draw_cast(grammar, draws, times=max(1, characters // CHARACTERS_A_CAST))
    lists = grammar["lists"] | cast
    title = f"Year book of the harbour of {cast['place'][0]}, kept by {cast['who'][0]}"
    days = [title]
    length, day = len(title), 0
    while length < characters or not day:
        days.append(_day(day, lists, draws))
        length += len(days[-1]) + 2
        day += 1
    return Report(text="\n\n".join(days), cast=cast)


@cache
def _grammar() -> dict[str, dict[str, Any]]:
    """The file's tables; the words' comma-separated texts as lists, together with the phrases and sentence forms."""
    grammar = tomllib.loads(GRAMMAR_FILE.read_text(encoding="utf-8"))
    words = {name: text.split(", ") for name, text in grammar["words"].items()}
    return grammar | {"lists": words | grammar["phrases"] | grammar["sentence"]}


def _draw_cast(grammar: Mapping[str, Mapping[str, Any]], draws: Draws, *, times: int) -> dict[str, tuple[str, ...]]:
    """The names that run through the whole text, each different."""
    cast: dict[str, tuple[str, ...]] = {}
    for kind, forms in grammar["cast"].items():
        names: dict[str, None] = {}
        while len(names) < grammar["size"][kind] * times:
            name = _expand(draws.one_of(forms), grammar["lists"], draws)
            names[name] = None
        cast[kind] = tuple(names)
    return cast


def _day(day: int, lists: Mapping[str, Sequence[str]], draws: Draws) -> str:
    date = _FIRST_DAY + dt.timedelta(days=day)
    heading = f"{_WEEKDAYS[date.weekday()]} {date.day} {_MONTHS[date.month - 1]} {date.year}"
    count = draws.between(*_SENTENCES_A_DAY)
    return f"{heading}. {' '.join(_sentence(lists, draws) for _ in range(count))}"


def _sentence(lists: Mapping[str, Sequence[str]], draws: Draws) -> str:
    text = _ARTICLE.sub(r"\1n ", _expand(draws.one_of(lists["form"]), lists, draws))
    return f"{text[0].upper()}{text[1:]}."


def _expand(form: str, lists: Mapping[str, Sequence[str]], draws: Draws) -> str:
    """The form with every slot filled; within one sentence nothing is named twice."""
    used: set[str] = set()

    def fill(slot: re.Match[str]) -> str:
        kind, low, high = slot.groups()
        if kind == "clock":
            return f"{draws.below(24):02}:{draws.below(60):02}"
        if low is not None:
            whole = str(draws.between(int(low), int(high)))
            return whole if kind == "n" else f"{whole}.{draws.below(10)}"
        entry = draws.one_of(lists[kind])
        while entry in used and "{" not in entry and entry:
            entry = draws.one_of(lists[kind])
        used.add(entry)
        return _SLOT.sub(fill, entry)

    return _SLOT.sub(fill, form)


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
