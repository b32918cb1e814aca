"""Bytes to JSON: marks, encodings, and an object a line."""

import codecs
import json

import pytest

from orchestrator.errors import InputError
from orchestrator.importers.json_values import decode

TEXT = json.dumps({"name": "grün", "value": 1})


@pytest.mark.parametrize(
    ("content", "called"),
    [
        (codecs.BOM_UTF8 + TEXT.encode(), "UTF-8"),
        (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), "UTF-16"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "UTF-16"),
        (codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"), "UTF-32"),
    ],
)
def test_a_byte_order_mark_is_left_out_and_reported(content: bytes, called: str) -> None:
    found = decode(content, name="f")
    assert found.body == json.loads(TEXT)
    assert found.notes == (f"the file begins with a byte order mark ({called}), which was left out",)


def test_without_a_mark_nothing_is_reported() -> None:
    assert decode(TEXT.encode(), name="f").notes == ()


def test_an_object_a_line_is_a_list() -> None:
    assert decode(b'{"a": 1}\r\n\r\n{"a": 2}\n', name="f").body == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "f.json: empty"),
        (b"\xff\xfe\xff", r"f.json: not text"),
        (b"| model | t/s |\n", r"f.json: not JSON .*; give the tool's JSON output"),
        (b'{"cut": [1, 2', r"f.json: not JSON"),
    ],
)
def test_what_is_not_json_is_refused_in_one_line(content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        decode(content, name="f.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "body", "note"),
    [
        ('[{"a": 1}]\n[{"a": 2}]\n', [{"a": 1}, {"a": 2}], "holds 2 results, one after the other"),
        ('[{"a": 1}][{"a": 2}]', [{"a": 1}, {"a": 2}], "holds 2 results"),
        ('[{"a": 1},\n {"a": 2}\n', [{"a": 1}, {"a": 2}], "its list is not closed: the 2 whole entries were read"),
        ('[{"a": 1},\n {"a": 2, "b', [{"a": 1}], "its last entry is cut off: the 1 whole entries were read"),
        ('[{"a": 1}]\n[{"a": 2}, {"a"', [{"a": 1}, {"a": 2}], "the 2 whole entries were read"),
        ('{"a": 1}\n{"a": 2}\n{"a": tr', [{"a": 1}, {"a": 2}], "the 2 whole entries were read"),
        ('{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}, "number 3 times"),
        ('{"a": "\\ud83d", "b": "\\ud83d\\ude00"}', {"a": "\ufffd", "b": "\U0001f600"}, "half a surrogate pair in 1"),
    ],
)
def test_what_can_be_read_is_read_and_reported(text: str, body: object, note: str) -> None:
    found = decode(text.encode(), name="f")
    assert found.body == body
    assert len(found.notes) == 1
    assert note in found.notes[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" * 100_000, "nested more than 60 deep"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested more than 60 deep"),
        (b'{"n": 9223372036854775808}', "the number 9223372036854775808 is larger than any count"),
        (b'{"n": ' + b"9" * 100_000 + b"}", "is larger than any count"),
        (b'{"completed": 1, "completed": 2}', "has the key 'completed' twice"),
        (b'{"cut": {"a": [1, 2', "the file ends too early"),
        (b'[{"a": 1}]\nbuild: 5 (abc)\n', "other text follows the JSON, 'build: 5"),
        ("gr\u00fcn".encode("latin-1"), "not text"),
        (json.dumps([1]).encode("utf-16-le"), "UTF-16 without a byte order mark"),
        (b"[" + b"1," * 2_000_001 + b"1]", "values are too many"),
        (b'{"a": 1,, "b": [' + b"1, " * 50 + b"2]}", "not JSON"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_no_result_file_is_is_one_line(content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        decode(content, name="f.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
