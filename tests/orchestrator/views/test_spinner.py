"""The spinner turns on a terminal only, and is gone before anything else is written."""

import io

from orchestrator.views.spinner import WORDS, EndingStream, Spinner


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_turns_until_the_first_output_and_leaves_no_trace() -> None:
    terminal, out = Terminal(), io.StringIO()
    with Spinner(terminal, after_s=0) as spinner:
        assert spinner.turns.wait(30)
        EndingStream(out, spinner).write("the answer\n")
        written = terminal.getvalue()
    assert WORDS in written
    assert written.rpartition(WORDS)[2].endswith("\x1b[2K")  # its line is erased
    assert terminal.getvalue() == written
    assert out.getvalue() == "the answer\n"


def test_output_in_time_keeps_it_from_turning() -> None:
    terminal = Terminal()
    with Spinner(terminal, after_s=3600) as spinner:
        EndingStream(io.StringIO(), spinner).writelines(["the answer\n"])
    assert terminal.getvalue() == ""
    assert not spinner.turns.is_set()


def test_nothing_turns_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Spinner(stream, after_s=0) as spinner:
        assert not spinner.turns.wait(0.1)
    assert stream.getvalue() == ""
