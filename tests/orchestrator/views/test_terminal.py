"""Nothing that others wrote acts on the terminal, whatever way it is printed."""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from db.escaping import shown, shown_line
from orchestrator.running.trial import Fault, Outcome, Verdict
from orchestrator.schedule import ScheduledTrial
from orchestrator.views.progress_view import ProgressObserver
from orchestrator.views.terminal import console, table
from tests.hostile import CONTROLS, controls

SGR = re.compile(r"\x1b\[[\d;]*m")
DROPPED = str.maketrans("", "", "\x07\x08\x0b\x0c\r")  # by Rich, of a Text
NASTY = "x\x1b]0;owned\x07\x1b[2J\u202e[/] [red]:smile:\ny"


def printed(show: Callable[[Console], None], **environment: str) -> str:
    """Return the text on standard output of a terminal that is wide enough for every line."""
    settings = {"COLUMNS": "4000", "TERM": "xterm"} | environment
    with mock.patch.dict(os.environ, settings), contextlib.redirect_stdout(io.StringIO()) as stream:
        show(console())
    return stream.getvalue()


def all_ways(text: str) -> Callable[[Console], None]:
    def show(out: Console) -> None:
        made = table("arm", text)
        made.add_row(Text(text, style="bold"), text)
        out.print(Text(text), text, made)
        out.print(Group(Text("so far: ", style="dim").append(text, style="red"), Padding(text, 1)), soft_wrap=True)
        out.print(text, style="bold", no_wrap=True)

    return show


@given(CONTROLS)
def test_no_control_character_goes_out(text: str) -> None:
    assert not controls(printed(all_ways(text)))


@given(CONTROLS)
def test_with_colours_only_riches_own_codes_go_out(text: str) -> None:
    out = printed(all_ways(text), FORCE_COLOR="1")
    assert "\x1b[1m" in out  # colours are on
    assert not controls(SGR.sub("", out))
    assert SGR.sub("", out) == printed(all_ways(text))


@given(CONTROLS, CONTROLS, CONTROLS)
def test_styles_stay_on_their_words(first: str, second: str, third: str) -> None:
    text = Text(first).append(second, style="bold").append(third)
    bold = [
        segment.text
        for segment in console().render(text, Console(width=10_000).options)
        if segment.style is not None and segment.style.bold
    ]
    assert "".join("".join(bold).split()) == "".join(shown(second.translate(DROPPED)).split())


def test_text_is_no_markup() -> None:
    assert "[/] [red]:smile:" in printed(lambda out: out.print(NASTY))


def test_a_width_is_kept_whatever_stands_for_a_character() -> None:
    out = printed(lambda console_: console_.print(Text("\u202e" * 40), soft_wrap=False), COLUMNS="80")
    assert max(map(len, out.splitlines())) <= 80
    assert out.replace("\n", "") == "⟨U+202E⟩" * 40


def test_a_log_holds_whole_lines() -> None:
    out = printed(lambda console_: console_.print("word " * 40), COLUMNS="80")
    assert out == "word " * 40 + "\n"


def test_who_stops_reading_stops_nothing() -> None:
    """In a process of its own, since its standard output goes to a pipe that nobody reads."""
    code = (
        "import sys; from orchestrator.views.terminal import console; out = console();"
        "[out.print('x' * 4000) for _ in range(3)]; sys.stdout.write('y'); sys.stdout.flush(); sys.exit(7)"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (7, "")


def tell(observer: ProgressObserver, text: str) -> None:
    trial = ScheduledTrial(
        sequence=0, kind="measured", round=0, position=0, label=text, arm=text, is_aa=False, prompt_ids=(), seed=0
    )
    verdict = Verdict(status="invalid", fault=Fault(kind="crash", message=text), excluded_reason=text)
    observer.preflight("arm", text)
    observer.trial_started(trial)
    observer.waiting(f"for {text}")
    observer.trial_ended(trial, verdict, mock.Mock(spec=Outcome))
    observer.arm_dropped("arm", text)
    observer.noted(text)


@given(st.text() | CONTROLS)
def test_a_message_is_one_line_and_forges_none(text: str) -> None:
    lines = printed(lambda out: tell(ProgressObserver(out), text)).splitlines()
    assert [line.split()[0] for line in lines] == ["preflight", "waiting", "invalid", "excluded", "dropped", "note"]
    assert lines[-1].rstrip() == f"note     {shown_line(text)}".rstrip()


def test_a_preflight_line_says_the_kind_and_leaves_the_details_to_what_follows() -> None:
    problem = "load_failed: arm fast: engine mlx_lm: no weights"
    lines = printed(lambda out: ProgressObserver(out).preflight("fast", problem)).splitlines()
    assert lines == ["preflight  ✗ fast: load_failed"]


def test_a_bar_on_a_terminal_shows_a_label_as_it_is() -> None:
    def show(out: Console) -> None:
        with ProgressObserver(out) as observer:
            tell(observer, NASTY)

    out = printed(show, FORCE_COLOR="1")
    assert "\x1b]0;" not in out
    assert "\x1b[2J" not in out
    assert "␛[2J⟨U+202E⟩[/] [red]:smile:" in out
