"""One streamed answer with its stamps. No I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workers.http.answer import Answer
from workers.http.sse import Event, SseError
from workers.http.watchdog import Watchdog
from workers.stopwatch import Clock

MAX_STREAM_BYTES = 128 * 2**20  # 100,000 tokens of a wordy server take about 40 MB
_MAX_HEAD_BYTES = 2**20


@dataclass(slots=True)
class Reply:
    """One streamed answer with the stamps that the stopwatch does not take.

    Attributes:
        started_ns, first_byte_ns, first_visible_ns: by the clock that the caller gave; None: it never came.
        recognised: an event or a comment has come: the body looks like an event stream. So can a page's style sheet.
        head: the start of the body until it is recognised, to name what it is if no answer comes of it.
    """

    answer: Answer
    started_ns: int = 0
    first_byte_ns: int | None = None
    first_visible_ns: int | None = None
    recognised: bool = False
    head: bytearray = field(default_factory=bytearray)

    def recognise(self, chunk: bytes, *, seen: bool) -> None:
        """Take a chunk of the body; `seen` states whether an event or a comment has come so far."""
        if not self.recognised and len(self.head) < _MAX_HEAD_BYTES:
            self.head += chunk
        self.recognised |= seen

    def since_start_us(self, stamp_ns: int | None) -> int | None:
        """A stamp of this reply in microseconds since its start."""
        return None if stamp_ns is None else (stamp_ns - self.started_ns + 500) // 1000


def limited(chunks: Iterator[bytes]) -> Iterator[bytes]:
    received = 0
    for chunk in chunks:
        received += len(chunk)
        if received > MAX_STREAM_BYTES:
            raise SseError(f"a stream of more than {MAX_STREAM_BYTES // 2**20} MiB")
        yield chunk


def ticks(events: Sequence[Event], reply: Reply, clock: Clock, watchdog: Watchdog) -> Iterator[None]:
    """Take events until the answer is done; one tick for each that brings text or the end."""
    for event in events:
        if reply.answer.done:
            return
        if reply.answer.take(event):
            if reply.first_visible_ns is None and reply.answer.text:
                reply.first_visible_ns = clock()
            watchdog.progress()
            yield
