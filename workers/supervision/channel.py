"""The parent's end of a worker's two pipes: lines out and in, each with a deadline, never blocking beyond it."""

import os
import selectors
import time

from workers.codec import MAX_LINE_BYTES, ProtocolError

_CHUNK_BYTES = 2**16


class ChannelClosed(Exception):
    """The other end is gone."""


class LineChannel:
    """Owns both descriptors. Deadlines are `time.monotonic()` seconds; data that is already there beats a deadline.

    `send` and `receive` raise TimeoutError at the deadline and ChannelClosed when the other end is gone.
    """

    def __init__(self, *, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._open = True
        self._buffer = bytearray()
        self._searched = 0  # no newline before this place of the buffer
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        self._readable, self._writable = selectors.DefaultSelector(), selectors.DefaultSelector()
        self._readable.register(read_fd, selectors.EVENT_READ)
        self._writable.register(write_fd, selectors.EVENT_WRITE)

    def send(self, line: bytes, *, deadline: float) -> None:
        """Write one whole line."""
        rest = memoryview(line)
        while rest:
            _wait(self._writable, deadline)
            try:
                rest = rest[os.write(self._write_fd, rest[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise ChannelClosed from error

    def receive(self, *, deadline: float) -> bytes:
        """The next whole line, without its newline.

        Raises:
            ProtocolError: longer than any message.
        """
        while (line := self._buffered_line()) is None:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise ProtocolError(f"a record of more than {MAX_LINE_BYTES} bytes")
            _wait(self._readable, deadline)
            chunk = os.read(self._read_fd, _CHUNK_BYTES)
            if not chunk:
                raise ChannelClosed
            self._buffer += chunk
        return line

    def close(self) -> None:
        """Close both ends; a worker that waits for a request ends by it. May be called again."""
        if not self._open:
            return
        self._open = False
        self._readable.close()
        self._writable.close()
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _buffered_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line


def _wait(selector: selectors.BaseSelector, deadline: float) -> None:
    if not selector.select(max(0.0, deadline - time.monotonic())):
        raise TimeoutError
