"""A document on the terminal: within its width, in its letters, and no word lost."""

import io

import pytest
from rich.console import Console

from orchestrator.report.document import Absent, Cell, Document, Fork, Grid, Line, Section
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
        lines=(Line(sign="✔", tone="good", verdict="supported", sentence="draft is faster", figure="1.20\u00d7"),),
        sections=(Section(key="s", title="Numbers", grids=(wide, stacked), forks=(fork,), lines=("A remark.",)),),
        absent=(Absent(title="Claims", reason="none is stored"),),
    )


def drawn(width: int, encoding: str = "utf-8") -> str:
    target = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_document(document(), Console(file=target, width=width, highlight=False))
    target.flush()
    assert isinstance(target.buffer, io.BytesIO)
    return target.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_it_keeps_to_the_width_and_says_the_verdict_before_the_tables(width: int) -> None:
    said = drawn(width)
    assert max(map(len, said.splitlines())) <= width
    order = ["SIMULATED: A fake clock.", "PARKED: b (why).", "Against plain", "supported: draft is faster", "Numbers"]
    places = [said.index(words) for words in order]
    assert places == sorted(places)
    assert "Claims\nNothing: none is stored." in said


def test_names_and_heads_break_between_words() -> None:
    said = drawn(80).split()
    assert {"block_size=4", "acceptance=null", "accepted", "prefill", "memory"} <= set(said)


def test_long_texts_stand_under_their_row_with_their_names() -> None:
    said = drawn(80)
    assert "twice as fast\n  verdict: confounded\n  differs: hardware: one against another\n" in said
    assert "⚠" not in said  # some terminals draw it over its neighbour; the word is enough


def test_a_fork_is_one_line_of_visible_text() -> None:
    said = " ".join(drawn(120).split())
    assert "after «the quick » «dog\u23ceran» became «fox»; real difference. Gap 0.1 nats." in said


def test_where_there_is_only_ascii_numbers_keep_their_signs() -> None:
    said = drawn(80, "ascii")
    assert "(1.20x)" in said
    assert "20 % faster" in said
