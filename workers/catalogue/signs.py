"""The catalogue's files as values. A file describes one server; the format, with every key, is in docs/evidence.md."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from workers.catalogue.binding import PLACES

FOLDER = Path(__file__).parent
MEANINGS = ("engaged", "fell_back", "disabled_mid_request", "useful", "not_evidence")
DENOMINATORS = ("drafted", "generated", "cycles")
REACHES = ("request", "server")
TRAFFIC = ("address", "generated", "prompt", "requests", "running", "started")
ANY = "any"  # of a sign's mechanism: whichever was requested


class CatalogueError(ValueError):
    """A catalogue's file, or a user's own signs, cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One sign that a server gives, and its meaning for the request it belongs to.

    Attributes:
        where: `log` (lines printed during the request), `response` (JSON of the stream's chunks), `state` (JSON of an
            address after the request), `difference` (counters of an address, after minus before).
        pattern: log: a regular expression; its named groups of digits are counts.
        counts: else: for each count the path to it.
        field, matches: else: a path, and the expression that its text must fit.
        positive: a count; above 0 the sign holds, at 0 it says the opposite.
        fresh: state: a path whose value must have changed during the request; otherwise it describes an earlier one.
        denominator: what `accepted` is a part of. Only `drafted` makes a rate that can be compared.
        share: a path to accepted tokens as a share of the count `generated`, where the server states no count.
        copies: `accepted` holds tokens that were copied from the context. A count `copied` (tokens proposed by copying)
            bounds them; without one their number is unknown. They are no acceptance of the mechanism's own proposals.
        sum: log: add up the lines of one request; else the last one counts.
        committed: `cycles` and `accepted` together are the tokens that were written, or all but the first.
        also: log: expressions for the lines just before this one; their groups count as this line's.
        place: response: a path that is there in every answer which could hold the counts.
        reach: what a sign that it did not run is about: `request`, or `server`: every request from then on.
        sum: log: add up the lines of one request; else each line is a request's.
        since, until: the server's versions that say so; until is not included.
    """

    id: str
    where: str
    meaning: str
    mechanism: str = ANY
    pattern: str | None = None
    address: str | None = None
    counts: Mapping[str, str] = field(default_factory=dict)
    field: str | None = None
    matches: str | None = None
    positive: str | None = None
    fresh: str | None = None
    denominator: str | None = None
    share: str | None = None
    copies: bool = False
    committed: bool = False
    also: Sequence[str] = ()
    place: str | None = None
    reach: str = "request"
    sum: bool = False
    since: str | None = None
    until: str | None = None
    example: str | None = None  # a line of this shape, for the log's patterns

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """The pattern of a log's line, or of a field's text."""
        return re.compile(self.pattern or self.matches or "")

    @cached_property
    def expressions_before(self) -> tuple[re.Pattern[str], ...]:
        """The expressions of `also`."""
        return tuple(re.compile(each) for each in self.also)

    def applies_to(self, version: str | None) -> bool:
        """True if this version gives the sign. An unknown version may give every sign that any version gives."""
        if version is None:
            return True
        own = _numbers(version)
        too_old = self.since is not None and own < _numbers(self.since)
        return not too_old and (self.until is None or own < _numbers(self.until))


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Everything known about one server.

    Attributes:
        absence: for each mechanism, what it means that a request left no sign: `not_engaged` where the server always
            gives one, else `unknown`, which is also what a mechanism has that is not listed.
        prometheus: addresses whose answer is Prometheus text.
        traffic: an `address`, and there the paths to counters of everything that the server served (`generated`,
            `prompt`, `requests`), to the requests that it runs (`running`) and to what changes when it is `started`.
        wait_s: how long after the answer its last sign may come.
        figures: paths in the response to the server's own figures: decode_tps, prefill_tps, cached_tokens.
        body_first, body_each: what a conversation's first request, or each of its requests, says so that no earlier
            conversation's prompt answers it; `{conversation}` becomes a word of its own for each conversation.
        owned_by: the owner that /v1/models names for each model: it tells the servers of one port apart.
        login: the address that takes the key (`api_key`) and answers with the cookie that the addresses want.
    """

    name: str
    title: str
    signs: tuple[Sign, ...] = ()
    absence: Mapping[str, str] = field(default_factory=dict)
    prometheus: tuple[str, ...] = ()
    traffic: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    figures: Mapping[str, str] = field(default_factory=dict)
    body_first: Mapping[str, Any] = field(default_factory=dict)
    body_each: Mapping[str, Any] = field(default_factory=dict)
    owned_by: str | None = None
    login: str | None = None

    def afresh(self, *, turn: int, conversation: str) -> dict[str, Any]:
        """The part of a request that keeps the conversation from an earlier one's cache."""
        fields = dict(self.body_each) | (dict(self.body_first) if turn == 0 else {})
        return {
            key: value.replace("{conversation}", conversation) if isinstance(value, str) else value
            for key, value in fields.items()
        }

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to read before and after each request."""
        named = [sign.address for sign in self.signs] + [self.traffic.get("address")]
        return tuple(dict.fromkeys(address for address in named if address is not None))


def names() -> list[str]:
    """The names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Preset:
    """One preset.

    Raises:
        CatalogueError: there is no such preset, or its file is wrong.
    """
    path = FOLDER / f"{name}.toml"
    if name not in names():
        raise CatalogueError(f"no evidence preset is named {name!r}; there are {', '.join(names())}")
    return read(name, tomllib.loads(path.read_text(encoding="utf-8")))


def read(name: str, body: Mapping[str, Any]) -> Preset:
    """A preset from its parsed file, or from settings of the same shape.

    Raises:
        CatalogueError: naming the key.
    """
    own = {f.name for f in fields(Preset)} - {"name", "signs"} | {"sign"}
    _refuse_unknown(name, body, own)
    values = {key: value for key, value in body.items() if key != "sign"}
    values["prometheus"] = tuple(values.get("prometheus", ()))
    signs = tuple(_sign(name, each) for each in body.get("sign", ()))
    if bad := [value for value in values.get("absence", {}).values() if value not in ("not_engaged", "unknown")]:
        raise CatalogueError(f"evidence {name}: absence is {bad[0]!r}; write not_engaged or unknown")
    _require_traffic(name, values.get("traffic", {}))
    return Preset(name=name, signs=signs, **({"title": name} | values))


def _sign(where: str, body: Mapping[str, Any]) -> Sign:
    label = f"{where}, sign {body.get('id', '?')}"
    _refuse_unknown(label, body, {f.name for f in fields(Sign)})
    try:
        sign = Sign(**body)
        _ = sign.expression, sign.expressions_before
    except (TypeError, re.error) as error:
        raise CatalogueError(f"evidence {label}: {error}") from error
    for key, known in (("where", PLACES), ("meaning", MEANINGS), ("reach", REACHES)):
        if getattr(sign, key) not in known:
            raise CatalogueError(f"evidence {label}: {key} is {getattr(sign, key)!r}; one of {', '.join(known)}")
    if sign.denominator is not None and sign.denominator not in DENOMINATORS:
        raise CatalogueError(f"evidence {label}: denominator {sign.denominator!r}; one of {', '.join(DENOMINATORS)}")
    _require_source(label, sign)
    return sign


def _require_source(label: str, sign: Sign) -> None:
    if (sign.where == "log") != (sign.pattern is not None):
        raise CatalogueError(f"evidence {label}: a log's sign has a pattern, and no other has")
    if (sign.where in ("state", "difference")) != (sign.address is not None):
        raise CatalogueError(f"evidence {label}: state and difference have an address, log and response none")
    if sign.where != "log" and not sign.counts and sign.field is None:
        raise CatalogueError(f"evidence {label}: it needs counts, or a field and what it matches")
    if sign.share is not None and (sign.where == "log" or "generated" not in sign.counts):
        raise CatalogueError(f"evidence {label}: share needs the count generated, and is a path: a log has none")
    if sign.positive is not None and sign.where != "log" and sign.positive not in sign.counts:
        raise CatalogueError(f"evidence {label}: positive names no count")


def _require_traffic(label: str, traffic: Mapping[str, str]) -> None:
    _refuse_unknown(f"{label}, traffic", traffic, set(TRAFFIC))
    if traffic and "address" not in traffic:
        raise CatalogueError(f"evidence {label}: traffic has no address")


def _refuse_unknown(label: str, body: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(body) - known):
        raise CatalogueError(f"evidence {label}: no key {unknown[0]!r}; there are {', '.join(sorted(known))}")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
