"""The guard passes only requests that read and are addressed to this machine."""

import asyncio
import re
from collections.abc import Sequence

import httpx
import pytest

from orchestrator.explore.guard import Guard, Message, Receive, Send
from orchestrator.explore.site import Site


async def _page(scope: Message, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"page"})


GUARD = Guard(inner=_page, site=Site(queries={}, resolve_run=lambda name: None))


def _request(
    method: str, host: str, headers: Sequence[tuple[str, str]] = (), path: str = "/interlace/trial?x=1"
) -> httpx.Response:
    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app=GUARD)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:
            return await client.request(method, path, headers=[("host", host), *headers])

    return asyncio.run(asking())


@pytest.mark.parametrize("host", ["127.0.0.1:8341", "localhost:1", "localhost", "127.0.0.1"])
def test_this_machines_own_names_pass(host: str) -> None:
    answer = _request("GET", host)
    assert (answer.status_code, answer.text) == (200, "page")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["elsewhere.example", "elsewhere.example:8341", "127.0.0.1.elsewhere.example:1", ""])
def test_a_name_that_was_made_to_mean_this_machine_does_not(host: str) -> None:
    answer = _request("GET", host)
    assert (answer.status_code, "page" in answer.text) == (403, False)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_but_reading_passes(method: str) -> None:
    assert _request(method, "localhost:1").status_code == 405
    assert "page" not in _request(method, "localhost:1").text


FOREIGN = (
    ("sec-fetch-site", "cross-site"),
    ("sec-fetch-site", "same-site"),  # another port of this machine
    ("Sec-Fetch-Site", "Cross-Site"),
    ("origin", "https://elsewhere.example"),
    ("origin", "http://localhost:9"),
    ("origin", "null"),
    ("origin", "http://[nonsense"),
    ("referer", "https://elsewhere.example/page"),
    ("referer", "http://localhost:1.elsewhere.example/"),
)


@pytest.mark.parametrize("header", FOREIGN)
def test_what_another_page_sent_is_turned_away(header: tuple[str, str]) -> None:
    answer = _request("GET", "localhost:1", [header])
    assert (answer.status_code, "page\n" in answer.text) == (403, False)
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "headers",
    [
        [("sec-fetch-site", "none")],
        [("sec-fetch-site", "same-origin"), ("origin", "http://localhost:1")],
        [("referer", "http://localhost:1/interlace")],
    ],
)
def test_its_own_pages_and_a_typed_address_pass(headers: list[tuple[str, str]]) -> None:
    assert _request("GET", "localhost:1", headers).text == "page"


def test_two_hosts_are_none() -> None:
    assert _request("GET", "localhost:1", [("host", "elsewhere.example")]).status_code == 403


def test_every_answer_is_for_its_own_pages_alone() -> None:
    answer = _request("GET", "localhost:1")
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    nonces = [re.findall(r"'nonce-([\w-]{20,})'", _policy_of_one_request()) for _ in range(2)]
    assert (len(set(nonces[0])), len(set(nonces[1])), nonces[0] == nonces[1]) == (1, 1, False)


def _policy_of_one_request() -> str:
    return str(_request("GET", "localhost:1").headers["content-security-policy"])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/interlace/trial_flat?" + "&".join(f"_facet=c{n}" for n in range(9)), 400),
        ("/interlace/trial_flat?" + "&".join(f"_facet_date=c{n}" for n in range(9)), 400),
        ("/interlace/trial_flat?" + "&".join(f"_facet=c{n}" for n in range(8)), 200),
        ("/interlace?" + "&".join(f"p{n}=1" for n in range(201)), 400),
        ("/-/plugins", 404),
        ("/-/static/app.css", 200),
    ],
)
def test_an_address_asks_for_so_much_and_no_more(path: str, status: int) -> None:
    assert _request("GET", "localhost:1", path=path).status_code == status


def test_a_websocket_is_not_served() -> None:
    async def asking() -> list[Message]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "websocket.connect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await GUARD({"type": "websocket", "headers": [], "path": "/interlace"}, receive, send)
        return sent

    assert asyncio.run(asking()) == []
