"""Prompt files: what they hold, what is said of a bad one; and the shipped ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.configuration.groups import SHIPPED_DIR
from orchestrator.configuration.workload import parse_prompts, read_workload
from orchestrator.errors import InputError
from orchestrator.plan import Prompt

USER = {"role": "user", "content": "Why?"}


def parse(text: str) -> tuple[Prompt, ...]:
    return parse_prompts(text, where="mine.jsonl", name="mine", max_tokens=50)


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def line(**body: Any) -> str:
    return json.dumps({"messages": [USER]} | body)


def shipped(name: str) -> tuple[Prompt, ...]:
    file = SHIPPED_DIR / "prompts" / f"{name}.jsonl"
    return read_workload({"name": name, "kind": "prompts", "file": str(file), "max_tokens": 400}).prompts


# ---- what a file holds ----


def test_a_line_is_a_conversation_with_defaults_for_what_it_does_not_say() -> None:
    first, second = parse(line() + "\n" + line(**{"id": "x", "class": "maths", "max_tokens": 7}) + "\n")
    assert first == Prompt(id="mine/0", workload="mine", prompt_class="mine", turns=((USER,),), max_tokens=50)
    assert second == Prompt(id="x", workload="mine", prompt_class="maths", turns=((USER,),), max_tokens=7)


def test_turns_hold_the_messages_added_before_each_answer() -> None:
    system = {"role": "system", "content": "Be brief."}
    (prompt,) = parse(json.dumps({"turns": [[system, USER], [USER]]}))
    assert prompt.turns == ((system, USER), (USER,))


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    text = line(id="a") + "\r\n\r\n" + line(id="b") + "\r\n"
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    prompts = read_workload({"name": "mine", "kind": "prompts", "file": str(file), "max_tokens": 5}).prompts
    assert [prompt.id for prompt in prompts] == ["a", "b"]
    assert prompts[0].turns == ((USER,),)


def test_separators_of_other_alphabets_end_no_line() -> None:
    text = "one\u2028two\u0085three"
    raw = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False)
    (prompt,) = parse(raw)
    assert prompt.turns[0][0]["content"] == text


@given(st.text(min_size=1).filter(lambda text: text.strip() and text.isprintable()), st.booleans())
def test_any_text_comes_back_as_it_was(text: str, ascii_only: bool) -> None:
    raw = json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=ascii_only)
    assert parse(raw)[0].turns[0][0]["content"] == text


def test_the_identity_follows_text_turns_and_length_and_nothing_else() -> None:
    same = [parse(line())[0].sha256, parse(line(id="x", **{"class": "y"}))[0].sha256]
    other = [parse(line(max_tokens=8))[0].sha256, parse(json.dumps({"turns": [[USER], [USER]]}))[0].sha256]
    assert len({*same, *other}) == 3
    assert same[0] == same[1]


# ---- bad files ----


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["mine.jsonl", "no prompts"]),
        ("\n \n", ["no prompts"]),
        (line() + "\n{", ["line 2", "not JSON", "column"]),
        (line() + "\n\n\n[1]", ["line 4", "not a JSON object"]),
        ("{}", ["line 1", "messages", "turns"]),
        (line(turns=[[USER]]), ["either messages (one answer) or turns"]),
        (line(max_token=4), ["line 1", "unknown key 'max_token'", "valid: id, class, max_tokens, messages, turns"]),
        (line(max_tokens=0), ["max_tokens is 0", "at least 1"]),
        (line(max_tokens=True), ["max_tokens is True"]),
        (line(max_tokens="9"), ["max_tokens is '9'"]),
        (line(id=""), ["id is ''"]),
        (line(id=5), ["id is 5"]),
        (line(**{"class": " "}), ["class is ' '"]),
        (line(id="a") + "\n\n" + line(id="a"), ["line 3", "'a'", "line 1"]),
        (line(id="mine/1") + "\n" + line(), ["line 2", "'mine/1'", "line 1"]),
        (line(messages=[]), ["no messages"]),
        (line(messages="Why?"), ["no messages"]),
        (json.dumps({"turns": []}), ["turns is not a list"]),
        (json.dumps({"turns": [[USER], []]}), ["no messages"]),
        (line(messages=["Why?"]), ["exactly role and content"]),
        (line(messages=[{"role": "user"}]), ["exactly role and content"]),
        (line(messages=[USER | {"name": "x"}]), ["exactly role and content"]),
        (line(messages=[{"role": "bot", "content": "x"}]), ["unknown role 'bot'", "system, user, assistant"]),
        (
            line(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            ["the user's content is empty or not text", "image_url", '"type": "text"'],
        ),
        (line(messages=[{"role": "user", "content": []}]), ["the user's content is empty or not text"]),
        (line(max_tokens=2**63), ["max_tokens is 9223372036854775808", "at most 1000000"]),
        ('{"class": "a", "class": "b", "messages": []}', ["the key 'class' appears twice"]),
        ('{"messages": [{"role": "user", "role": "user", "content": "x"}]}', ["the key 'role' appears twice"]),
        ("[" * 100_000, ["nested too deeply"]),
        ('{"max_tokens": ' + "9" * 5000 + "}", ["line 1: a number of too many digits; write"]),
        ('{"max_tokens": ' + "9" * 5000 + "}", ["write one object per line"]),
        ('{"class": "\\ud83d", "messages": [{"role": "user", "content": "x"}]}', ["half a surrogate pair"]),
        (line(messages=[{"role": "user", "content": " "}]), ["the user's content is empty"]),
        (line(messages=[{"role": "user", "content": [{"type": "text"}]}]), ["the user's content is empty or not text"]),
        (line(messages=[USER, {"role": "assistant", "content": "x"}]), ["last message is the assistant's"]),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', ["half a surrogate pair"]),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_the_remedy(text: str, parts: list[str]) -> None:
    message = refused(text)
    for part in ["mine.jsonl", *parts]:
        assert part in message


def test_a_file_that_is_none_or_no_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(b"\n\n" + '{"messages": [{"role": "user", "content": "Größe"}]}'.encode("latin-1"))
    for path, part in [
        (file, "line 3: not UTF-8"),
        (tmp_path, "no prompt is left"),
        (tmp_path / "no", "workload.file=my.jsonl"),
    ]:
        with pytest.raises(InputError, match=part):
            read_workload({"name": "mine", "kind": "prompts", "file": str(path), "max_tokens": 5})


# ---- shipped ----


def test_the_five_prompts_are_two_of_maths_two_of_code_one_of_prose() -> None:
    prompts = shipped("five_prompts")
    assert [prompt.prompt_class for prompt in prompts] == ["maths", "maths", "code", "code", "prose"]
    assert {prompt.max_tokens for prompt in prompts} == {400}
    assert min(len(prompt.turns[0][-1]["content"].split()) for prompt in prompts) > 60  # enough to fill 400 tokens


def test_the_quick_prompts_are_the_same_classes_and_short() -> None:
    prompts = shipped("quick")
    assert [prompt.prompt_class for prompt in prompts] == ["maths", "code", "prose"]
    for prompt in prompts:
        system, user = prompt.turns[0]
        assert (system["role"], user["role"]) == ("system", "user")  # without one, a template may add a long one
        assert len(system["content"].split()) <= 3
        assert len(user["content"].split()) <= 12


def test_the_shipped_prompts_are_what_they_were() -> None:
    """Results are compared by this identity: a change of the text is a new workload and needs a new name."""
    assert {name: [prompt.sha256[:12] for prompt in shipped(name)] for name in ("quick", "five_prompts")} == GOLDEN


def test_the_context_is_about_the_prompts_with_their_answers() -> None:
    (prompt,) = parse(line(messages=[{"role": "user", "content": "x" * 330}], max_tokens=20))
    assert prompt.context_tokens == 120


GOLDEN = {
    "quick": ["ca7fe69591cc", "acb05de19b86", "ab1877a206ee"],
    "five_prompts": ["ee1f041d0a06", "3c646b91d922", "d5c2c769082c", "749eebfcefcb", "93e06bd3e7d3"],
}


def test_parts_of_text_are_joined_and_are_the_same_prompt_as_their_text() -> None:
    parts = [{"type": "text", "text": "Hello "}, {"type": "text", "text": "you"}]
    (made,) = parse_prompts(
        json.dumps({"messages": [{"role": "user", "content": parts}]}), where="f", name="w", max_tokens=9
    )
    (plain,) = parse_prompts(
        json.dumps({"messages": [{"role": "user", "content": "Hello you"}]}), where="f", name="w", max_tokens=9
    )
    assert made == plain


def test_what_is_no_file_is_refused_and_not_read() -> None:
    with pytest.raises(InputError, match="is not a regular file"):
        read_workload({"name": "w", "kind": "prompts", "file": "/dev/zero", "max_tokens": 9})
