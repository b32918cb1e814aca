"""What may pass: reading, addressed to this machine."""

import asyncio

import httpx
import pytest

from orchestrator.explore.guard import Guard, Message, Receive, Send
from orchestrator.explore.site import Site


async def _page(scope: Message, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"page"})


GUARD = Guard(inner=_page, site=Site(queries={}, resolve_run=lambda name: None))


def _request(method: str, host: str) -> httpx.Response:
    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app=GUARD)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:
            return await client.request(method, "/interlace/trial?x=1", headers={"host": host})

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
