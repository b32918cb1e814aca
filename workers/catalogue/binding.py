"""Binds the signs in a request's window to that request, and decides what they prove. Pure.

A server that others use as well prints their lines and counts their tokens too. A sign is ours when it stands in our
own answer, bears our request's id, or when the server's counters of all its traffic moved by our own usage and no more.
Counts that equal our own usage bind a sign as well, unless anything in the window shows another request. Every other
sign proves nothing: the result is unknown, with the reason, and never "engaged".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

PLACES = LOG, RESPONSE, STATE, DIFFERENCE = "log", "response", "state", "difference"  # in which a sign is looked for
# Tokens beside prompt and answer that a server may hold for a request: draft slots, a template's end.
_CONTEXT_SLACK = 64


class Bond(Enum):
    """The way in which a sign is bound to the request."""

    own = "own"  # by the answer that holds it, by an id, or because nobody else used the server
    equal = "equal"  # by counts that equal our usage: another request of the same size would have them too
    untold = "untold"  # nothing in it identifies its request
    foreign = "foreign"  # its counts are not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The size of one request of ours, by the answer's own usage. None: not stated."""

    prompt: int | None = None
    generated: int | None = None
    max_tokens: int | None = None
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIdentity:
    """The identity of a log's file, and of its content before the request.

    Attributes:
        tail: a digest of the last bytes before the place where the request's lines begin.
    """

    file: tuple[int, int]  # device and inode
    size: int
    tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process that listens on the server's port."""

    pid: int
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The request's surroundings.

    Attributes:
        owed: our own earlier requests that left no sign: theirs may still come.
        log_before, log_after: None: no log, or none that could be read.
        processes_before, processes_after: who listens on the port; empty: not visible from here.
        traffic: by how much the server's counters of everything that it served moved: `generated`, `prompt`,
            `requests`; empty: it has none that could be read.
        busy: how many other requests ran when ours began or ended; None: unknown.
        company: another client's connection to the server, in words, or that such cannot be seen; None: there was none.
        restarted: the server's own statement of its start changed.
        silent: the answer has a place for the mechanism's counts and does not hold them.
    """

    usage: Usage = Usage()
    owed: Sequence[Usage] = ()
    log_before: LogIdentity | None = None
    log_after: LogIdentity | None = None
    processes_before: frozenset[ProcessIdentity] = frozenset()
    processes_after: frozenset[ProcessIdentity] = frozenset()
    traffic: Mapping[str, int] = field(default_factory=dict)
    busy: int | None = None
    company: str | None = None
    restarted: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A sign as it was found.

    Attributes:
        source: the sign's name in the catalogue: two traces of one source are two requests', or two parts of one.
        says: True: the mechanism ran; False: it did not, or not all the time.
        counts: by name: `generated`, `prompt`, `max_tokens` and `requests` are checked against ours; of `cycles` and
            `accepted` no more can be ours than we have tokens; `context` is what the cache holds, `running` the
            number of requests in a batch.
        committed: cycles and accepted together are the tokens that were written.
        whole_server: it is about every request from now on, or about all of the window.
    """

    source: str
    where: str
    says: bool
    text: str
    counts: Mapping[str, int] = field(default_factory=dict)
    id: str | None = None
    committed: bool = False
    whole_server: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The conclusion from a window.

    Attributes:
        engaged: None: unknown, and `reason` says why.
        trace: the sign that proves it.
        partly: something else shows that it ran for a part of the request.
    """

    engaged: bool | None
    trace: Trace | None = None
    reason: str = ""
    partly: bool = False


def decide(traces: Sequence[Trace], window: Window) -> Decision | None:
    """Decide what these signs prove about the request, or return None if there is no sign.

    A proof that it did not run outweighs every doubt about signs that it did.
    """
    if not traces:
        return None
    sound = [trace for trace in traces if fault(trace.where, window) is None]
    bonds = [(trace, bond(trace, window)) for trace in sound]
    ran = [(trace, how) for trace, how in bonds if trace.says]
    denial = next((trace for trace, how in bonds if not trace.says and _proves(trace, how)), None)
    own = next((trace for trace, how in _fullest(ran) if how is Bond.own), None)
    equal = next((trace for trace, how in _fullest(ran) if how is Bond.equal), None)
    doubt = next(_doubts(bonds, window), None)
    if denial is None and doubt is None:
        denial = next((trace for trace, how in bonds if not trace.says and how is Bond.equal), None)
    if denial is not None:
        return Decision(engaged=False, trace=denial, partly=own is not None or equal is not None)
    if own is not None:
        return Decision(engaged=True, trace=own)
    if equal is not None and doubt is None:
        return Decision(engaged=True, trace=equal)
    return Decision(engaged=None, reason=doubt or _why_unknown(traces, bonds, window))


def bond(trace: Trace, window: Window) -> Bond:
    """The bond between a sign and the request."""
    if trace.where == RESPONSE:
        return Bond.own
    usage, counts = window.usage, trace.counts
    if trace.id is not None and usage.ids:
        return Bond.own if trace.id in usage.ids else Bond.foreign
    if _differs(counts, usage) or _exceeds(trace, usage):
        return Bond.foreign
    if alone(window) is True:
        return Bond.own
    equal = usage.generated is not None and counts.get("generated") == usage.generated
    # A fall-back is printed before the request runs; a counter of requests that moved by one is as good as ours.
    denied = not trace.says and bool(counts.keys() & {"max_tokens", "requests"})
    return Bond.equal if equal or denied or _committed(trace, usage) else Bond.untold


def alone(window: Window) -> bool | None:
    """True if the server's counters show that it served this request alone; None if they cannot show it."""
    expected = {"generated": window.usage.generated, "prompt": window.usage.prompt, "requests": 1}
    known = [(moved, expected[name]) for name, moved in window.traffic.items() if expected.get(name) is not None]
    if window.busy or any(ours is not None and moved > ours for moved, ours in known):
        return False
    if any(moved != ours for moved, ours in known):
        return None  # not all is counted yet
    return True if window.traffic.keys() & {"generated", "requests"} and known else None


def fault(where: str, window: Window) -> str | None:
    """The reason why signs from this place cannot belong to the request; None if nothing speaks against them."""
    if where == RESPONSE:
        return None
    before, after = window.processes_before, window.processes_after
    if window.restarted or before != after:
        return "the process behind the server's port changed during this request"
    return log_fault(window.log_before, window.log_after) if where == LOG else None


def log_fault(before: LogIdentity | None, after: LogIdentity | None) -> str | None:
    """The reason why lines read since `before` may be older, or from another log; None if they are sound."""
    if before is None or after is None:
        return None if before == after else "the log appeared or went away during this request"
    if before.file != after.file:
        return "the log was replaced by another file during this request"
    if after.size < before.size:
        return "the log shrank during this request"
    return None if before.tail == after.tail else "what the log held before this request was rewritten"


def _differs(counts: Mapping[str, int], usage: Usage) -> bool:
    ours = {"generated": usage.generated, "prompt": usage.prompt, "max_tokens": usage.max_tokens, "requests": 1}
    known = {name: value for name, value in ours.items() if value is not None}
    return counts.get("running", 1) != 1 or any(counts[name] != known[name] for name in counts.keys() & known.keys())


def _exceeds(trace: Trace, usage: Usage) -> bool:
    """True if the counts exceed what our own tokens allow."""
    counts, generated = trace.counts, usage.generated
    if any(value < 0 for value in counts.values()):
        return True
    if generated is not None and any(counts.get(name, 0) > generated for name in ("cycles", "accepted")):
        return True
    if trace.committed and generated is not None and _written(trace) > generated:
        return True
    if "context" not in counts or usage.prompt is None or generated is None:
        return False
    return not usage.prompt <= counts["context"] <= usage.prompt + generated + _CONTEXT_SLACK


def _committed(trace: Trace, usage: Usage) -> bool:
    """True if the tokens written equal ours. The first token may come from the prompt's pass, which is not a cycle."""
    if not trace.committed or usage.generated is None or not {"cycles", "accepted"} <= trace.counts.keys():
        return False
    return _written(trace) in (usage.generated - 1, usage.generated)


def _written(trace: Trace) -> int:
    return trace.counts.get("cycles", 0) + trace.counts.get("accepted", 0)


def _proves(trace: Trace, how: Bond) -> bool:
    return how is Bond.own or trace.whole_server


def _fullest(ran: Sequence[tuple[Trace, Bond]]) -> list[tuple[Trace, Bond]]:
    """The traces, those with the most counts first."""
    return sorted(ran, key=lambda each: -len(each[0].counts.keys() & {"drafted", "accepted"}))


def _doubts(bonds: Sequence[tuple[Trace, Bond]], window: Window) -> Iterator[str]:
    """Reasons why counts that equal ours do not suffice here."""
    if window.silent:
        yield "the answer itself has a place for the counts of the mechanism and does not hold them"
    if alone(window) is False:
        yield f"another client used the server during this request: {_moved(window)}"
    if window.company is not None:
        yield f"another client may have used the server: {window.company}"
    strange = [trace for trace, how in bonds if how in (Bond.foreign, Bond.untold)]
    if strange:
        yield f"a sign that cannot be bound to this request, perhaps another client's: {strange[0].text}"
    lines = [trace for trace, how in bonds if how is Bond.equal and trace.where == LOG]
    twice = next((trace for trace in lines if sum(each.source == trace.source for each in lines) > 1), None)
    if twice is not None:
        yield f"two lines fit this request, and one of them is another's: {twice.text}"
    likely = (trace for trace, how in bonds if how is Bond.equal)
    if any(bond(trace, Window(usage=usage)) is Bond.equal for trace in likely for usage in window.owed):
        yield "it may be the late sign of an earlier request of the same size, which left none"


def _moved(window: Window) -> str:
    moved = ", ".join(f"{name} +{value}" for name, value in window.traffic.items())
    return f"{window.busy} more ran when it began" if window.busy else f"{moved}, and ours is 1 of {_own_size(window)}"


def _own_size(window: Window) -> str:
    return "unknown size" if window.usage.generated is None else f"{window.usage.generated} tokens"


def _why_unknown(traces: Sequence[Trace], bonds: Sequence[tuple[Trace, Bond]], window: Window) -> str:
    broken = next((reason for trace in traces if (reason := fault(trace.where, window)) is not None), None)
    if broken is not None:
        return broken
    return f"a sign that cannot be bound to this request: {bonds[0][0].text}"
