"""Bytes to JSON: marks, encodings, and an object a line."""

import codecs
import json

import pytest

from orchestrator.errors import InputError
from orchestrator.foreign.decoding import decode

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
def test_a_byte_order_mark_is_left_out_and_told(content: bytes, called: str) -> None:
    found = decode(content, name="f")
    assert found.body == json.loads(TEXT)
    assert found.notes == (f"the file begins with a byte order mark ({called}), which was left out",)


def test_without_a_mark_nothing_is_told() -> None:
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
