"""A document on the terminal: within its width, in its letters, and no word lost."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.report.document import Absent, Cell, Command, Document, Fork, Grid, Line, Section
from orchestrator.report.render_terminal import print_document

NAME = "block_size=4 acceptance=null"
NUMBERS = ("first token", "prefill", "decode", "end to end", "token p95", "accept length", "accepted", "peak memory")


def document() -> Document:
    wide = Grid(
        columns=("arm", *NUMBERS),
        rows=((NAME, *["999\u00a0ms"] * len(NUMBERS)), ("A/A", *["\u2013"] * len(NUMBERS))),
        numeric=frozenset(range(1, 9)),
    )
    stacked = Grid(
        columns=("claim", "verdict", "differs"),
        rows=(("twice as fast", Cell(text="confounded", tone="odd", sign="⚠"), "hardware: one against another"),),
        below=frozenset((2,)),
    )
    fork = Fork(
        title="draft against plain, quick/0, from token 3",
        arm_name="draft",
        place=2,
        tone="bad",
        verdict="real difference",
        before="the quick ",
        control="dog\nran",
        arm="fox",
        remark="Gap 0.1 nats.",
    )
    return Document(
        title="test",
        about=("run r",),
        warnings=(("Simulated", "A fake clock."), ("Parked", "b (why).")),
        verdict="Against plain, draft is 20\u00a0% faster.",
        lines=(
            Line(
                sign="✔",
                tone="good",
                verdict="supported",
                sentence="draft is faster",
                figure="",
                arm="draft",
                answer="faster",
                ratio="1.20\u00d7 (1.10 to 1.30)",
                absolute="120 tokens/s, the control 100",
                because="faster in 8 of 8 rounds",
            ),
            Line(sign="!", tone="doubt", verdict="late", sentence="turn 2 starts late", figure=""),
        ),
        commands=(Command(purpose="to decide", text="interlace run " + "x" * 200),),
        sections=(Section(key="s", title="Numbers", grids=(wide, stacked), forks=(fork,), lines=("A remark.",)),),
        absent=(Absent(title="Claims", reason="none is stored"),),
    )


def drawn(width: int, encoding: str = "utf-8", *, terminal: bool = False, said: Document | None = None) -> str:
    target = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=target, width=width, highlight=False, force_terminal=terminal, no_color=True)
    print_document(said or document(), console)
    target.flush()
    assert isinstance(target.buffer, io.BytesIO)
    return target.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_it_keeps_to_the_width_and_ends_with_the_answer(width: int) -> None:
    said = drawn(width)
    assert max(len(line) for line in said.splitlines() if "xxx" not in line) <= width
    order = ["SIMULATED: A fake clock.", "PARKED: b (why).", "Numbers", "Against plain", "draft: faster", "to decide"]
    places = [said.index(words) for words in order]
    assert places == sorted(places)
    assert "Claims\nNothing: none is stored." in said


def test_names_and_heads_break_between_words() -> None:
    said = drawn(80).split()
    assert {"block_size=4", "acceptance=null", "accepted", "prefill", "memory"} <= set(said)


@pytest.mark.parametrize("width", [50, 60, 80])
def test_no_word_of_a_wide_table_is_broken(width: int) -> None:
    """Arms' names are cut in their middle; where that is not enough, each row is a list."""
    name, heads = "smollm2-8bit mlx_lm_draft", ("width", "tokens", "round", "verify", "draft", "predicted", "measured")
    row = (name, "all", *["0.46"] * len(heads), "0.34 to 0.56")
    wide = Grid(columns=("arm", "prompts", *heads, "interval"), rows=(row,), numeric=frozenset(range(2, 10)))
    lone = Section(key="s", title="Numbers", grids=(replace(wide, caption="A caption"),))
    said = drawn(width, said=replace(document(), sections=(lone,)))
    assert max(len(line) for line in said.splitlines() if "xxx" not in line) <= width
    words = set(re.split(r"[ \n:]+", said))
    assert {*heads, "interval", "prompts", "0.46"} <= words
    assert name.split()[1] in words or "mlx_l…draft" in words


def test_long_texts_stand_under_their_row_with_their_names() -> None:
    said = drawn(80)
    assert "twice as fast\n  verdict: confounded\n  differs: hardware: one against another\n" in said
    assert "⚠" not in said  # some terminals draw it over its neighbour; the word is enough


def test_a_fork_is_one_line_of_visible_text() -> None:
    said = " ".join(drawn(120).split())
    assert "after «the quick » «dog\u23ceran» became «fox»; real difference. Gap 0.1 nats." in said


def test_where_there_is_only_ascii_numbers_keep_their_signs() -> None:
    said = drawn(80, "ascii")
    assert "1.20x (1.10 to 1.30)" in said
    assert "20 % faster" in said


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_terminal_frames_the_arms_and_breaks_no_command(width: int, encoding: str) -> None:
    said = re.sub(r"\x1b\[[0-9;]*m", "", drawn(width, encoding, terminal=True))
    frame, edge = ("╭", "│") if encoding == "utf-8" else ("+", "|")
    box = [line for line in said.splitlines() if line.startswith((frame, edge))]
    assert {len(line) for line in box} == {len(box[0])}
    assert len(box[0]) <= width
    assert any("draft: faster" in line for line in box)
    assert any("120 tokens/s, the control 100" in line for line in box)
    assert "to decide  interlace run " + "x" * 200 in said


def test_many_arms_have_one_line_each_and_the_rest_are_counted() -> None:
    one = document().lines[0]
    said = drawn(80, said=replace(document(), lines=tuple(replace(one, arm=f"arm {at}") for at in range(25))))
    assert "arm 19: faster" in said
    assert "arm 20: faster" not in said
    assert "and 5 more" in said
    assert "the control 100" not in said
