"""The codec: any message survives the wire, and any bytes end in a message or in one clear error."""

import json
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.codec import ProtocolError, decode, encode, field_types
from workers.protocol import Heartbeat, Load, Loaded, Message

MESSAGES: tuple[type[Message], ...] = get_args(Message)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FINITE | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    Any: JSON,
    str: st.text(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: FINITE,
    bool: st.booleans(),
    NoneType: st.none(),
}


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type."""
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    if isinstance(hint, UnionType):
        return st.one_of(*map(of_type, get_args(hint)))
    if get_origin(hint) is list:
        return st.lists(of_type(*get_args(hint)), max_size=3)
    if get_origin(hint) is dict:
        return st.dictionaries(st.text(), of_type(get_args(hint)[1]), max_size=3)
    assert is_dataclass(hint)
    return instances(hint)


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Instances of a message's class with every field drawn."""
    return st.builds(cls, **{name: of_type(hint) for name, hint in field_types(cls).items()})


messages: st.SearchStrategy[Message] = st.one_of(*map(instances, MESSAGES))


@given(messages)
def test_any_message_survives_the_wire_as_one_ascii_line(message: Message) -> None:
    line = encode(message)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


def is_refused(line: bytes) -> bool:
    """Return whether the line is not a message; any other exception than ProtocolError fails the test."""
    try:
        decode(line)
    except ProtocolError:
        return True
    return False


@given(st.binary())
def test_any_bytes_are_refused(line: bytes) -> None:
    assert is_refused(line)


@given(JSON)
def test_any_json_is_refused(value: Any) -> None:
    assert is_refused(json.dumps(value).encode())


@given(st.sampled_from(MESSAGES), st.dictionaries(st.text(), JSON, max_size=3))
def test_any_body_of_a_known_kind_never_raises_anything_else(cls: type[Message], body: dict[str, Any]) -> None:
    is_refused(json.dumps(body | {"kind": cls.kind}).encode())


@given(messages, st.data())
def test_a_message_cut_short_is_refused(message: Message, data: st.DataObject) -> None:
    line = encode(message).rstrip(b"\n")
    assert is_refused(line[: data.draw(st.integers(0, len(line) - 1))])


@given(messages, st.data())
def test_a_value_of_another_type_is_refused_by_its_fields_name(message: Message, data: st.DataObject) -> None:
    body = json.loads(encode(message))
    names = [name for name, hint in field_types(type(message)).items() if hint is not Any]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    body[name] = [[[{"no": "field is of this type"}]]]
    with pytest.raises(ProtocolError, match=rf"{message.kind}\.{name}"):
        decode(json.dumps(body).encode())


@pytest.mark.parametrize("cls", [cls for cls in MESSAGES if fields(cls)])
def test_missing_and_unknown_fields_are_named(cls: type[Message]) -> None:
    required = sorted(f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING)
    with pytest.raises(ProtocolError, match=rf"{cls.kind}: missing fields .*{required[0]}"):
        decode(json.dumps({"kind": cls.kind}).encode())
    with pytest.raises(ProtocolError, match=rf"{cls.kind}: unknown fields .*colour"):
        decode(json.dumps({"kind": cls.kind, "colour": 1}).encode())


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"heartbeat","phase":"decode","tokens":true}',  # a bool is no count
        b'{"kind":"heartbeat","phase":"decode","tokens":1.0}',
        b'{"kind":"heartbeat","phase":"decode","tokens":null}',
        b'{"kind":["heartbeat"]}',
        b"[" * 100_000,
        b'{"kind":"heartbeat","phase":"decode","tokens":' + b"9" * 10_000 + b"}",
        b"\xff\xfe\x00",
    ],
)
def test_what_json_alone_would_let_pass_is_refused(line: bytes) -> None:
    assert is_refused(line)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused(number: str) -> None:
    loaded = Loaded(
        load_s=-123.0,
        active_memory_bytes=None,
        peak_memory_bytes=None,
        simulated=True,
        drafted_per_step=None,
        verify_width=1,
    )
    line = encode(loaded)
    assert decode(line) == loaded
    assert is_refused(line.replace(b"-123.0", number.encode()))


def test_a_number_that_is_not_finite_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(Load(target="", settings={"x": float("nan")}, checkpoint={}, draft=None, sampling={}))


def test_half_a_character_arrives_as_its_replacement_wherever_it_stands() -> None:
    loaded = Loaded(
        load_s=1.0,
        active_memory_bytes=None,
        peak_memory_bytes=None,
        simulated=False,
        drafted_per_step=None,
        verify_width=None,
        engine_setting={"a\ud800": ["\udfff", 1]},
        engine_version="\ud83d",
        notes=["\ud83d\ude00 \ud83d"],
    )
    arrived = decode(encode(loaded))
    assert isinstance(arrived, Loaded)
    assert arrived.engine_setting == {"a\ufffd": ["\ufffd", 1]}
    assert (arrived.engine_version, arrived.notes) == ("\ufffd", ["\U0001f600 \ufffd"])


def test_a_number_beyond_64_bits_is_no_message() -> None:
    line = encode(Heartbeat(phase="decode", tokens=2**63))
    with pytest.raises(ProtocolError, match="tokens"):
        decode(line)
