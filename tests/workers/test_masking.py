"""No secret that the process uses is in what it says, whoever wrote it and however it is written."""

import base64
import html
import io
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workers.masking import MASK, MaskingStream, Secrets, mask

KEY = "sk-Ab/c+d=e&f<g>9Zq?1"


@pytest.fixture
def known() -> Secrets:
    found = Secrets()
    found.add(KEY)
    return found


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY),
        quote(KEY, safe=""),
        quote(KEY, safe="").lower().replace("sk-ab", "sk-Ab").replace("9zq", "9Zq"),
        quote_plus(KEY),
        json.dumps({"error": f"bad key {KEY}"}),
        json.dumps({"body": json.dumps({"key": KEY})}),
        json.dumps(KEY).replace("/", "\\/"),
        json.dumps(KEY).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        html.escape(KEY),
        repr({"Authorization": f"Bearer {KEY}"}),
        KEY.encode().hex(),
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"u:{KEY}".encode()).decode(),
        base64.urlsafe_b64encode(f"user:{KEY}:more".encode()).decode(),
        f"twice {KEY} and {KEY}",
    ],
)
def test_a_secret_is_found_as_other_formats_write_it(known: Secrets, form: str) -> None:
    masked = known.mask(f"said: {form} (end)")
    assert MASK in masked
    assert "9Zq" not in masked
    assert masked.startswith("said: ")
    assert masked.endswith(" (end)")


@pytest.mark.parametrize("length", [len(KEY) // 2 + 1, len(KEY) - 1])
def test_a_secret_is_found_where_it_was_cut_off(known: Secrets, length: int) -> None:
    assert known.mask(f"Incorrect key: {KEY[:length]}... (log: x)") == f"Incorrect key: {MASK}... (log: x)"


def test_a_text_without_secrets_stays_as_it_is(known: Secrets) -> None:
    assert known.mask("engine.block_size=4 of sk-other") == "engine.block_size=4 of sk-other"


@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_whatever_the_secret_it_is_not_in_the_text(value: str, before: str, after: str) -> None:
    assume(len(value.strip()) >= 8)  # shorter ones are masked as whole words only
    known = Secrets()
    known.add(value)
    if known.mask(value) == value:
        assert value.strip() != value or all(character in "0123456789.eE+-" for character in value)
        return
    assert value not in known.mask(before + value + after).replace(MASK, "")


def test_a_short_secret_is_masked_as_a_word_and_a_placeholder_never() -> None:
    known = Secrets()
    known.add("hunter2", "abc", "EMPTY", "lm-studio", "12345678", None, "")
    assert known.mask("hunter2, hunter22, abc, EMPTY, lm-studio, 12345678") == (
        f"{MASK}, hunter22, abc, EMPTY, lm-studio, 12345678"
    )


def test_of_an_address_the_password_and_the_login_are_secret_by_themselves() -> None:
    known = Secrets()
    known.add("http://me:p%40ssword@proxy.example:8080/")
    login = base64.b64encode(b"me:p@ssword").decode()
    for text in ("p%40ssword", "p@ssword", f"Basic {login}", "http://me:p%40ssword@proxy.example:8080/v1"):
        assert "ssword" not in known.mask(text)
        assert login not in known.mask(text)
    assert known.mask("proxy.example") == "proxy.example"


def test_a_webhooks_path_is_secret_without_its_host() -> None:
    known = Secrets()
    known.add("https://hooks.example/services/T0/B0/abcdef")
    assert "abcdef" not in known.mask("POST /services/T0/B0/abcdef HTTP/1.1")


def test_plain_values_are_masked_at_any_depth_and_numbers_stay(known: Secrets) -> None:
    values = {"a": [1, 2.5, None, {KEY: KEY}], "b": True}
    assert known.mask_all(values) == {"a": [1, 2.5, None, {MASK: MASK}], "b": True}


@pytest.mark.parametrize("text", ["wörd before " + KEY + "\n", f"{KEY}{KEY}", "nothing"])
def test_a_filler_keeps_the_lengths_in_bytes(known: Secrets, text: str) -> None:
    hidden = known.mask(text, filler="*")
    assert len(hidden.encode()) == len(text.encode())
    assert KEY not in hidden


def test_variables_that_hold_a_path_of_this_machine_hide_nothing() -> None:
    known = Secrets()
    known.add_variables(["SSH_AUTH_SOCK", "MY_KEY"], {"SSH_AUTH_SOCK": "/dev/null", "MY_KEY": "a-real-key"})
    assert known.mask("/dev/null a-real-key") == f"/dev/null {MASK}"


def test_what_is_printed_is_masked(no_known_secrets: None) -> None:
    from workers.masking import KNOWN

    KNOWN.add(KEY)
    printed = io.StringIO()
    MaskingStream(printed).writelines([f"Authorization: {KEY}\n", "plain\n"])
    assert printed.getvalue() == f"Authorization: {MASK}\nplain\n"
    assert mask(KEY) == MASK
