"""Settings, each declared once: the default, the meaning, the limits, the unit, and the engine's own word for it.

An engine declares its settings as a frozen dataclass:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings(EngineSettings):
        block_size: int = setting(4, "Verify width.", limit=at_least(2), unit="tokens", word="num_draft_tokens + 1")

The Hydra schema, the checks before a run and in the worker, `interlace engine show` and the documentation are all made
from this. The groups of `conf.schema` declare theirs the same way. Standard library only: a worker in another
environment needs this module, and `conf` may import nothing else of this package.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ValueT = TypeVar("ValueT")
_KEY = "interlace"  # of a field's metadata
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}  # types of activations and scales, as mlx names them
MISSING = "???"  # omegaconf's own mark of a value that has to be given


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition on a value besides its type. null always satisfies it."""

    holds: Callable[[Any], bool]
    words: str  # "at least 2"
    verb: str = "give"

    def problem(self, value: Any) -> str | None:
        """Says what is wrong with a value and what to give instead; None: nothing is."""
        return None if value is None or self.holds(value) else f"is {value}: {self.verb} {self.words}"


def at_least(bound: float) -> Limit:
    return Limit(lambda value: bool(value >= bound), f"at least {bound:g}")


def above(bound: float) -> Limit:
    return Limit(lambda value: bool(value > bound), f"more than {bound:g}")


def within(low: float, high: float) -> Limit:
    """Both ends included."""
    return Limit(lambda value: bool(low <= value <= high), f"a value from {low:,} to {high:,}")


def between(low: float, high: float) -> Limit:
    """Both ends excluded."""
    return Limit(lambda value: bool(low < value < high), f"a value between {low:g} and {high:g}")


def above_up_to(low: float, high: float) -> Limit:
    """The upper end included."""
    return Limit(lambda value: bool(low < value <= high), f"a value above {low:g}, up to {high:g}")


def ascending(low: int, high: int, *, most: int) -> Limit:
    """A list of whole numbers, each larger than the one before it, both ends included."""
    return Limit(
        lambda values: (
            0 < len(values) <= most
            and all(low <= value <= high for value in values)
            and all(a < b for a, b in pairwise(values))
        ),
        f"1 to {most} ascending numbers from {low:,} to {high:,}",
    )


def an_address() -> Limit:
    """A server's address, as `is_address` judges it. A reference that is resolved later passes."""
    return Limit(lambda value: "${" in value or is_address(value), "an address such as http://127.0.0.1:8080")


def is_address(url: str) -> bool:
    """Return whether a text is an http or https address with a host and, if it has a port, one from 1 to 65535.

    HTTP clients take a larger port modulo 65536 and so talk to another server.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def one_of(*words: Any) -> Limit:
    return Limit(lambda value: value in words, f"one of {', '.join(map(str, words))}", verb="choose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration of a setting besides its name, type and default."""

    meaning: str
    limit: Limit | None = None
    unit: str | None = None  # if the name does not end with it
    word: str | None = None  # the engine's own word for it, as a formula if the number differs


def setting(
    default: ValueT, meaning: str, *, limit: Limit | None = None, unit: str | None = None, word: str | None = None
) -> ValueT:
    """A dataclass field with its declaration. A mutable default is copied for each instance."""
    metadata = {_KEY: Declaration(meaning=meaning, limit=limit, unit=unit, word=word)}
    made: Any
    if isinstance(default, (dict, list)):
        made = field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    else:
        made = field(default=default, metadata=metadata)
    return made  # type: ignore[no-any-return]  # a Field, for which type checkers take the default's type


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """An engine's settings; inherit and declare them."""

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield (key, what is wrong) for settings that are fine each and wrong together."""
        yield from ()


def declarations(kind: type[Any]) -> Mapping[str, Declaration]:
    """The declared settings of a dataclass by name."""
    return MappingProxyType({each.name: each.metadata[_KEY] for each in fields(kind) if _KEY in each.metadata})


def problems(kind: "type[DataclassInstance]", values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) for given values: those outside their limits, then those that conflict.

    Values that are null or still missing are not judged here.
    """
    declared, clean = declarations(kind), True
    for key, value in values.items():
        problem = None
        if isinstance(value, float) and not math.isfinite(value):
            problem = f"is {value}: give a finite number"
        elif key in declared and value != MISSING and (limit := declared[key].limit) is not None:
            problem = limit.problem(value)
        if problem is not None:
            clean = False
            yield key, problem
    if clean and issubclass(kind, EngineSettings):
        known = {each.name for each in fields(kind)}
        yield from kind(**{key: value for key, value in values.items() if key in known}).conflicts()
