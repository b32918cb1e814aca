"""Override lines as settings: Hydra's grammar, our refusals, precedence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.configuration.overrides import COMMAND_LINE, Setting, merge, parse, suggest
from orchestrator.errors import InputError

OPTIONS = {"checkpoint": ["qwen-4bit", "qwen-8bit", "smol"], "engine": ["plain", "draft"]}


def read(*lines: str) -> list[Setting]:
    return parse(lines, origin=COMMAND_LINE, options_of=lambda group: OPTIONS.get(group, []))


def values(line: str) -> tuple[Any, ...]:
    return read(line)[0].values


def refused(*lines: str) -> str:
    with pytest.raises(InputError) as caught:
        read(*lines)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("engine.block_size=4", (4,)),
        ("engine.block_size=2,4,8", (2, 4, 8)),
        ("engine.block_size=range(2,9,3)", (2, 5, 8)),
        ("engine.block_size=choice(2,4)", (2, 4)),
        ("engine.block_size=sort(8,2,4)", (2, 4, 8)),
        ("checkpoint=glob(qwen*)", ("qwen-4bit", "qwen-8bit")),
        ("checkpoint=glob(*,exclude=qwen*)", ("smol",)),
        ("a.b=[1,2],[3]", ([1, 2], [3])),
        ("a.b=[[1,2],[3]],[]", ([[1, 2], [3]], [])),
        ("a.b=[1,2]", ([1, 2],)),
        ("a.b='x,y',z", ("x,y", "z")),
        ('a.b="x,y"', ("x,y",)),
        ("a.b={c:1,d:'2,3'}", ({"c": 1, "d": "2,3"},)),
        ("a.b=null,true,1.5,text", (None, True, 1.5, "text")),
        ("a.b=range(0.1,0.5,0.1)", (0.1, 0.2, 0.3, 0.4)),
        ("a.b=range(0.1,1.1,0.1)", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
    ],
)
def test_hydras_grammar_gives_the_values(line: str, expected: tuple[Any, ...]) -> None:
    assert values(line) == expected


def test_a_control_is_taken_as_it_stands() -> None:
    assert values("control=smol draft block_size=4") == ("smol draft block_size=4",)
    assert values("control='smol draft'") == ("smol draft",)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("+extra=1", ["+extra=1", "write extra=value"]),
        ("++engine.x=1", ["++engine.x=1", "write engine.x=value"]),
        ("~engine", ["~engine", "set engine"]),
        ("engine@other=plain", ["engine@other=plain", "packages"]),
        ("hydra.run.dir=x", ["hydra.run.dir=x", "Hydra's own settings"]),
        ("a.b=interval(0,1)", ["a.b=interval(0,1)", "range(start,stop,step)"]),
        ("a.b=shuffle(1,2)", ["shuffle()", "at random anyway"]),
        ("a.b=shuffle(range(1,4))", ["shuffle()"]),
        ("a.b=range(4,1)", ["a.b=range(4,1)", "no value"]),
        ("checkpoint=glob(zz*)", ["checkpoint=glob(zz*)", "qwen-4bit, qwen-8bit, smol"]),
        ("engine", ["'engine'", "key=value"]),
        ("a.b=[1", ["a.b=[1", "quote"]),
        ("a.b=x=y", ["a.b=x=y", "quote"]),
        ("", ["key=value"]),
        ("a.b=range(1,5,0)", ["a.b=range(1,5,0)"]),
        ("a.b=range(1,1000000000000)", ["a.b=range(1,1000000000000)", "more than 10000"]),
    ],
)
def test_what_is_refused_says_the_override_and_the_remedy(line: str, parts: list[str]) -> None:
    message = refused(line)
    for part in parts:
        assert part in message


def test_a_key_given_twice_is_refused_with_the_way_to_sweep_it() -> None:
    message = refused("checkpoint=smol", "checkpoint=qwen-4bit")
    assert "checkpoint is given twice" in message
    assert "checkpoint=a,b" in message


def test_a_later_layer_wins_and_a_key_keeps_its_place() -> None:
    merged = merge(read("a.x=1", "b.y=2"), read("b.y=3,4", "c.z=5"))
    assert [(setting.key, setting.values) for setting in merged] == [("a.x", (1,)), ("b.y", (3, 4)), ("c.z", (5,))]


def test_suggestions_name_the_nearest_and_all() -> None:
    assert suggest("block_sise", ["block_size", "draft"]) == "did you mean block_size? valid: block_size, draft"
    assert suggest("qqq", ["draft"]) == "valid: draft"
    assert suggest("qqq", []) == "valid: none"


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=8, unique=True))
def test_every_listed_value_comes_back_in_order(numbers: list[int]) -> None:
    assert values(f"a.b={','.join(map(str, numbers))}") == tuple(numbers)


@given(st.lists(st.text(min_size=1, max_size=12).filter(lambda text: "\\" not in text), min_size=1, max_size=4))
def test_any_quoted_text_comes_back(texts: list[str]) -> None:
    quoted = ",".join("'" + text.replace("'", "\\'") + "'" for text in texts)
    assert values(f"a.b={quoted}") == tuple(texts)
