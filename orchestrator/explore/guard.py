"""An ASGI application around another that lets through only requests that read and are meant for this machine.

A page from elsewhere can send requests to this machine, and can make its own name mean this machine. What is not
addressed to a loopback name, or was sent by another page, is turned away, and so is everything but reading. Nothing is
loaded from elsewhere, framed or run beside what the templates hold: every response's headers forbid it.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from orchestrator.explore.nonces import VARIABLE
from orchestrator.explore.site import Site

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

_NAMES = ("127.0.0.1", "localhost")
_OWN_SITES = ("same-origin", "none")  # "none": typed, or opened from the terminal
_AT_ONCE = 3  # concurrent responses: each may hold a result of the largest size
_MOST_FACETS = 8
_MOST_PARAMETERS = 200
_OWN_PAGES = ("/-/static/",)  # of Datasette's own pages about itself
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Lets through what only reads, is addressed to this machine, and was sent by no other page."""

    inner: Application
    site: Site
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
        elif scope["type"] != "http":
            return  # nothing but pages is served
        elif (refusal := _refusal(scope)) is not None:
            await _answer(send, *refusal)
        elif (target := self.site.redirect(scope["path"], _query_string(scope))) is not None:
            await _answer(send, 302, "", headers=((b"location", target.encode("latin-1")),))
        else:
            nonce = secrets.token_urlsafe(16)
            async with self.turns:
                await self.inner({**scope, VARIABLE: nonce}, receive, _with_headers(send, nonce))


def _refusal(scope: Message) -> tuple[int, str] | None:
    """Return the status and the text of a refusal, or None if the request may pass."""
    headers: Headers = scope["headers"]
    if not _is_addressed_to_us(headers):
        return 403, f"interlace explore answers to {' and '.join(_NAMES)} only"
    if not _is_from_us(headers):
        return 403, "interlace explore answers to its own pages only: type or paste the address"
    if scope["method"] not in ("GET", "HEAD"):
        return 405, "interlace explore only reads"
    path = scope["path"]
    if path.startswith("/-/") and not path.startswith(_OWN_PAGES):
        return 404, "no such page"
    try:
        names = [
            name for name, _ in parse_qsl(_query_string(scope), keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        ]
    except ValueError:
        return 400, f"an address may have {_MOST_PARAMETERS} parameters"
    if sum(name.startswith("_facet") for name in names) > _MOST_FACETS:
        return 400, f"an address may name {_MOST_FACETS} facets"
    return None


def _query_string(scope: Message) -> str:
    found: bytes = scope["query_string"]
    return found.decode("latin-1")


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip().lower() for each, value in headers if each.lower() == name]


def _is_addressed_to_us(headers: Headers) -> bool:
    hosts = _values(headers, b"host")
    return len(hosts) == 1 and _name_of(hosts[0]) in _NAMES


def _is_from_us(headers: Headers) -> bool:
    """Return whether no other page sent it. Browsers show it by Sec-Fetch-Site; older ones by Origin or Referer, if at
    all. Another port of this machine is another page."""
    if any(site not in _OWN_SITES for site in _values(headers, b"sec-fetch-site")):
        return False
    (host,) = _values(headers, b"host")
    senders = [*_values(headers, b"origin"), *_values(headers, b"referer")]
    return all(_site_of(sender) == host for sender in senders)


def _site_of(address: str) -> str | None:
    try:
        return urlsplit(address).netloc
    except ValueError:
        return None


def _name_of(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _policy(nonce: str) -> bytes:
    own = f"'self' 'nonce-{nonce}'"
    return (
        f"default-src 'self'; script-src {own}; style-src {own}; img-src 'self' data:; object-src 'none';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ).encode()


def _with_headers(send: Send, nonce: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            policy = (b"content-security-policy", _policy(nonce))
            message = {**message, "headers": [*message.get("headers", ()), policy, *_HEADERS]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    plain = (b"content-type", b"text/plain; charset=utf-8")
    policy = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
    await send({"type": "http.response.start", "status": status, "headers": [plain, policy, *headers, *_HEADERS]})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
