"""Prompts as other programs keep them: recognised, named, and what cannot be asked is left out with its reason."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.configuration import workload
from orchestrator.configuration.workload import ReadPrompts, read_text, read_workload
from orchestrator.errors import InputError
from tests.orchestrator.composing import plan_of, refusal

SIMULATED = ("engine=simulated", "checkpoint=simulated")


def read(path: Path, **settings: Any) -> ReadPrompts:
    return read_workload({"name": "mine", "kind": "prompts", "file": str(path), "max_tokens": 50} | settings)


def written(path: Path, *entries: Any, listed: bool) -> Path:
    text = json.dumps(entries) if listed else "".join(f"{json.dumps(each)}\n" for each in entries)
    path.write_text(text, encoding="utf-8")
    return path


def asked(found: ReadPrompts) -> list[list[tuple[str, str]]]:
    """Each prompt's messages of all its turns, one after the other."""
    return [[(m["role"], m["content"]) for turn in each.turns for m in turn] for each in found.prompts]


def said(speaker: str, text: object) -> dict[str, object]:
    return {"from": speaker, "value": text}


# ---- ShareGPT ----


@pytest.mark.parametrize("listed", [True, False])
def test_sharegpt_conversations_are_asked_again_without_their_recorded_answers(tmp_path: Path, listed: bool) -> None:
    file = written(
        tmp_path / "sharegpt.json",
        {
            "id": "a",
            "conversations": [said("human", "One?"), said("gpt", "1"), said("human", "Two?"), said("gpt", "2")],
        },
        {"id": "b", "conversations": [said("system", "Be brief."), said("user", "Three?")]},
        {"id": "c", "conversations": [said("gpt", "Hello"), said("human", "Four?")]},
        {"id": "d", "conversations": [said("human", " "), said("gpt", "?")]},
        {"id": "e", "conversations": [said("human", "Five?"), said("tool", "5")]},
        {"id": "f", "conversations": []},
        {"id": "a", "conversations": [said("human", "Six?")]},
        {"question": "of another form"},
        listed=listed,
    )
    found = read(file)
    assert asked(found) == [
        [("user", "One?"), ("user", "Two?")],
        [("system", "Be brief."), ("user", "Three?")],
        [("user", "Six?")],
    ]
    assert [len(prompt.turns) for prompt in found.prompts] == [2, 1, 1]
    assert [prompt.id for prompt in found.prompts] == ["a", "b", "mine/2"]  # an id that is used again is replaced
    assert found.notes == (
        f"{file}: read as ShareGPT conversations, their questions alone, 3 of 8; left out: begins with an answer (1),"
        " holds an empty message (1), holds a message of a tool or another speaker (1), holds no question (1),"
        " is of another form (1)",
    )


# ---- MT-bench, batches, instructions, texts ----


def test_mt_bench_questions_keep_their_category_and_both_turns(tmp_path: Path) -> None:
    file = written(
        tmp_path / "question.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["Write a post.", "Shorter."], "reference": ["x"]},
        {"question_id": 82, "category": "maths", "turns": ["What is 2 + 2?", ""]},
        listed=False,
    )
    found = read(file)
    (prompt,) = found.prompts
    assert (prompt.id, prompt.prompt_class, len(prompt.turns)) == ("question 81", "writing", 2)
    assert "read as MT-bench questions, 1 of 2; left out: holds an empty turn (1)" in found.notes[0]


def batch(custom_id: str, url: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "m", "temperature": 1} | body}


def test_batch_requests_keep_their_messages_and_lengths(tmp_path: Path) -> None:
    user = {"role": "user", "content": "Why?"}
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    parts = {"role": "user", "content": [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]}
    file = written(
        tmp_path / "batch.jsonl",
        batch("r1", messages=[{"role": "system", "content": "Be brief."}, user], max_tokens=7),
        batch("r2", messages=[user | {"name": "ada"}], max_completion_tokens=9),
        batch("r3", messages=[parts]),
        batch("r4", url="/v1/embeddings", input="x"),
        batch("r5", messages=[image]),
        batch("r6", messages=[user], tools=[{"type": "function"}]),
        batch("r7", messages=[user, {"role": "assistant", "content": "Because."}]),
        batch("r8", messages=[user], max_tokens=0),
        listed=False,
    )
    found = read(file)
    assert asked(found) == [[("system", "Be brief."), ("user", "Why?")], [("user", "Why?")], [("user", "Why?")]]
    assert [(prompt.id, prompt.max_tokens) for prompt in found.prompts] == [("r1", 7), ("r2", 9), ("r3", 50)]
    (note,) = found.notes
    for reason in ("is not a chat request (1)", "than text (2)", "user's message (1)"):
        assert reason in note
    assert "is not a valid prompt (line 8: max_tokens is 0" in note


@pytest.mark.parametrize(
    ("entry", "text", "words"),
    [
        ({"instruction": "Sort.", "input": "3 1 2", "output": "1 2 3"}, "Sort.\n\n3 1 2", "Alpaca instructions"),
        ({"instruction": "Sing.", "input": ""}, "Sing.", "Alpaca instructions"),
        ({"prompt": "Why?", "category": "short"}, "Why?", "prompts as texts"),
        ({"question": "Why?", "answer": "Because."}, "Why?", "prompts as texts"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_single_texts_are_prompts(tmp_path: Path, entry: dict[str, str], text: str, words: str, listed: bool) -> None:
    found = read(written(tmp_path / "x.json", entry, listed=listed))
    assert asked(found) == [[("user", text)]]
    assert words in found.notes[0]
    assert found.prompts[0].prompt_class == entry.get("category", "mine")


def test_our_own_form_as_a_list_is_read_as_strictly_as_by_lines(tmp_path: Path) -> None:
    entry = {"class": "a", "messages": [{"role": "user", "content": "Why?"}]}
    found = read(written(tmp_path / "x.json", entry, entry, listed=True))
    assert ([prompt.prompt_class for prompt in found.prompts], found.notes) == (["a", "a"], ())
    with pytest.raises(InputError, match="as a list, line 2: unknown key 'clas'"):
        read(written(tmp_path / "y.json", entry, entry | {"clas": 1}, listed=True))


# ---- tables and folders ----


def test_a_column_of_a_table_holds_the_prompts(tmp_path: Path) -> None:
    file = tmp_path / "support.csv"
    file.write_text(
        'id,Category,Prompt\n1,short,"Why, ""Ada""?"\n2,long,"Line one\nline two"\n3,none,\n\n', "utf-8-sig"
    )
    found = read(file)
    assert asked(found) == [[("user", 'Why, "Ada"?')], [("user", "Line one\nline two")]]
    assert [(prompt.id, prompt.prompt_class) for prompt in found.prompts] == [("1", "short"), ("2", "long")]
    assert found.notes == (f"{file}: read as a table, column 'Prompt', 2 of 3; left out: has no text in it (1)",)


def test_the_column_is_asked_for_if_several_could_hold_the_prompts(tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    file.write_text("question\tprompt\tnote\nQ\tP\tN\n")
    with pytest.raises(InputError, match=r"Set workload\.column=NAME; its columns are question, prompt, note"):
        read(file)
    assert asked(read(file, column="note")) == [[("user", "N")]]
    with pytest.raises(InputError, match="has no column 'Note'; its columns are question, prompt, note"):
        read(file, column="Note")
    alone = tmp_path / "y.csv"
    alone.write_text("whatever\nWhy?\n")
    assert asked(read(alone)) == [[("user", "Why?")]]


@pytest.mark.parametrize("text", ["", "prompt\n", 'prompt\n"open'])
def test_a_table_without_prompts_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.csv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_folder_holds_a_prompt_per_text_file_and_a_class_per_folder_in_it(tmp_path: Path) -> None:
    for name, text in (("b/2.md", "Two?"), ("a.txt", "One?"), ("c/.git/x.txt", "no"), ("d.py", "no"), ("e.txt", " ")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = read(tmp_path)
    assert asked(found) == [[("user", "One?")], [("user", "Two?")]]
    assert [(prompt.id, prompt.prompt_class) for prompt in found.prompts] == [("a.txt", "mine"), ("b/2.md", "b")]
    assert found.notes == (
        f"{tmp_path}: read as a folder of text files, 2 of 4; left out: is not .txt or .md (1), is empty (1)",
    )


def test_a_folder_that_is_no_folder_of_prompts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("Why?")
    monkeypatch.setattr(workload, "_MOST_FILES", 2)
    with pytest.raises(InputError, match="holds more than 2 files"):
        read(tmp_path)
    monkeypatch.setattr(workload, "_MOST_FILES", 9)
    monkeypatch.setattr(workload, "_MOST_BYTES", 10)
    with pytest.raises(InputError, match="its texts are more than"):
        read(tmp_path)


# ---- settings, and the plan ----


def test_the_first_prompts_are_taken_and_the_plan_says_what_was_read(tmp_path: Path) -> None:
    file = written(tmp_path / "x.jsonl", *({"prompt": f"What is {n}?"} for n in range(9)), listed=False)
    plan = plan_of(*SIMULATED, "workload=prompts", f"workload.file={file}", "workload.first=2", "workload.max_tokens=9")
    assert [prompt.turns[0][0]["content"] for prompt in plan.prompts] == ["What is 0?", "What is 1?"]
    assert plan.notes[:2] == (
        f"{file}: read as prompts as texts, 9 of 9",
        f"{file}: the first 2 of 9 prompts are taken",
    )


def test_a_column_of_what_is_no_table_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "x.jsonl", {"prompt": "Why?"}, listed=False)
    with pytest.raises(InputError, match=r"workload\.column=prompt belongs to a CSV file"):
        read(file, column="prompt")
    assert "column does not apply to two_turns" in refusal(*SIMULATED, "workload=two_turns", "workload.column=x")


@pytest.mark.parametrize("text", ["[]", "[1]", "[", '["a", {"prompt": "x"}]', "[[[[" * 9000, '[{"prompt": 1e999999}]'])
def test_a_list_without_prompts_is_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_text(text, where="x.json", name="mine", max_tokens=9)
    assert "\n" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["conversations", "turns", "question_id", "custom_id", "url", "body", "messages", "instruction", "input"]
NAMES = [*KEYS, "prompt", "question", "id", "class", "category", "from", "value", "role", "content", "tools"]


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), json_values, max_size=4), max_size=4), st.booleans())
def test_whatever_a_file_holds_gives_prompts_or_one_line(entries: list[Any], listed: bool) -> None:
    text = json.dumps(entries) if listed else "\n".join(map(json.dumps, entries))
    try:
        found = read_text(text, where="x.json", name="mine", max_tokens=9)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017  # or it is read
    else:
        assert all(turn[-1]["content"].strip() for prompt in found.prompts for turn in prompt.turns)
        assert len({prompt.id for prompt in found.prompts}) == len(found.prompts) > 0


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9), min_size=1))
def test_a_written_table_is_read_as_it_was(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    file = tmp_path_factory.mktemp("t") / "x.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([["prompt", "id"], *([text, number] for number, text in enumerate(texts))])
    kept = [text for text in texts if text.strip()]
    if kept:
        assert [messages[0][1] for messages in asked(read(file))] == kept
