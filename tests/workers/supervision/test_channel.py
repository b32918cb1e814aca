"""Lines come whole, however they arrive, and no wait outlasts its deadline."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.supervision.channel import ChannelClosed, LineChannel


class Ends:
    """A channel and the other end of its pipes."""

    def __init__(self) -> None:
        self.their_read, write_fd = os.pipe()
        read_fd, self.their_write = os.pipe()
        self.channel = LineChannel(read_fd=read_fd, write_fd=write_fd)
        self._theirs = {self.their_read, self.their_write}

    def close_theirs(self, fd: int) -> None:
        self._theirs.remove(fd)
        os.close(fd)

    def close(self) -> None:
        self.channel.close()
        for fd in list(self._theirs):
            self.close_theirs(fd)


@contextmanager
def pipes() -> Iterator[Ends]:
    ends = Ends()
    try:
        yield ends
    finally:
        ends.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with pipes() as ends:
        yield ends


def soon() -> float:
    return time.monotonic() + 20


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_whole_however_they_are_split(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(stream)))
    with pipes() as ends:
        received = []
        for part in (stream[:cut], stream[cut:]):
            os.write(ends.their_write, part)
            received += [ends.channel.receive(deadline=soon()) for _ in range(part.count(b"\n"))]
        assert received == lines


def test_half_a_line_is_waited_for_until_the_deadline(ends: Ends) -> None:
    os.write(ends.their_write, b"half")
    deadline = time.monotonic() + 0.05
    with pytest.raises(TimeoutError):
        ends.channel.receive(deadline=deadline)
    assert time.monotonic() >= deadline
    os.write(ends.their_write, b" and half\n")
    assert ends.channel.receive(deadline=soon()) == b"half and half"


def test_what_is_already_there_beats_a_deadline_that_has_passed(ends: Ends) -> None:
    """This process may itself have been held up: the answer counts."""
    os.write(ends.their_write, b"one\ntwo\n")
    assert ends.channel.receive(deadline=time.monotonic() - 5) == b"one"
    assert ends.channel.receive(deadline=time.monotonic() - 5) == b"two"


def test_the_end_of_the_channel_comes_after_its_last_line(ends: Ends) -> None:
    os.write(ends.their_write, b"last\nhalf")
    ends.close_theirs(ends.their_write)
    assert ends.channel.receive(deadline=soon()) == b"last"
    with pytest.raises(ChannelClosed):
        ends.channel.receive(deadline=soon())


def test_a_line_that_nobody_takes_ends_at_the_deadline(ends: Ends) -> None:
    """Though the pipe has some room when the writing begins."""
    ends.channel.send(b"short\n", deadline=soon())
    deadline = time.monotonic() + 0.05
    with pytest.raises(TimeoutError):
        ends.channel.send(b"x" * 2**20, deadline=deadline)
    assert time.monotonic() >= deadline


def test_a_line_to_nobody_is_reported(ends: Ends) -> None:
    ends.close_theirs(ends.their_read)
    with pytest.raises(ChannelClosed):
        ends.channel.send(b"anyone?\n", deadline=soon())


def test_it_may_be_closed_again(ends: Ends) -> None:
    ends.channel.close()
    ends.channel.close()
