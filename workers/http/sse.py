"""Server-sent events, byte by byte: bytes in as they come, whole events out. Pure, no I/O.

The rules are those of the HTML standard's event stream: lines end with LF, CR or CRLF, in any mixture; one space after
a field's colon is dropped, if there is one; several `data` lines of one event are joined by LF; a line that starts with
a colon is a comment; a byte order mark at the start is not part of the text; an event without data is skipped.

Two deviations, because servers are less strict than the standard:
- what is pending when the stream ends is an event: a last `data: [DONE]` often lacks its empty line;
- spaces before a field's name are dropped: some servers keep a connection alive with spaces.

Whatever pieces the bytes come in, the events are the same: a line is decoded once it is whole, and the bytes that end a
line are never part of a character.
"""

from dataclasses import dataclass

MAX_EVENT_BYTES = 16 * 2**20
_BOM = b"\xef\xbb\xbf"


class SseError(ValueError):
    """The bytes are not an event stream."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `name` is its `event` field; empty: none was given."""

    data: str
    name: str = ""


class SseParser:
    """Feed it chunks, then close it.

    Attributes:
        comments: how many comment lines came: servers send them to keep a connection alive.
    """

    __slots__ = ("_at_start", "_data", "_data_bytes", "_held", "_held_bytes", "_name", "_skip_lf", "comments")

    def __init__(self) -> None:
        self.comments = 0
        self._held: list[bytes] = []  # of a line that is not whole yet
        self._held_bytes = 0
        self._data: list[str] = []
        self._data_bytes = 0  # of the event under way, in however many lines
        self._name = ""
        self._at_start = True
        self._skip_lf = False  # the last byte was a CR, which ended its line: an LF now belongs to it

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes.

        Raises:
            SseError: an event larger than `MAX_EVENT_BYTES`.
        """
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            self._hold(chunk)
            return []
        if self._held:
            chunk = b"".join([*self._held, chunk])
            self._held.clear()
            self._held_bytes = 0
        self._skip_lf = chunk.endswith(b"\r")
        lines = chunk.splitlines(keepends=True)  # of bytes: at LF, CR and CRLF only
        if lines[-1][-1:] not in (b"\n", b"\r"):
            self._hold(lines.pop())
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n"))) is not None]

    def close(self) -> list[Event]:
        """The events that the stream's end completes."""
        last = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        ended = [self._line(last), self._line(b"")]
        return [event for event in ended if event is not None]

    def _hold(self, part: bytes) -> None:
        if not part:
            return
        self._held.append(part)
        self._held_bytes += len(part)
        _require_size(self._held_bytes)

    def _line(self, line: bytes) -> Event | None:
        """Take one whole line, its end left out; the event that it completes."""
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, colon, value = line.partition(b":")
        name = name.lstrip(b" ")
        if not name and colon:
            self.comments += 1
        elif name == b"data":
            self._data_bytes += len(value)
            _require_size(self._data_bytes)
            self._data.append(_text(value))
        elif name == b"event":
            self._name = _text(value)
        return None

    def _dispatch(self) -> Event | None:
        data, name = self._data, self._name
        if not data:
            self._name = ""
            return None
        self._data, self._data_bytes, self._name = [], 0, ""
        return Event("\n".join(data), name)


def _require_size(size_bytes: int) -> None:
    if size_bytes > MAX_EVENT_BYTES:
        raise SseError(f"an event of more than {MAX_EVENT_BYTES // 2**20} MiB")


def _text(value: bytes) -> str:
    """Return a field's value without one leading space, and with invalid UTF-8 replaced."""
    return value.removeprefix(b" ").decode("utf-8", errors="replace")
