"""What a request may do: read, and only when it was meant for this machine. An ASGI application around another.

A page from elsewhere can send requests to this machine, and can make its own name mean this machine: what is not
addressed to a loopback name is turned away, and so is everything but reading. Nothing is loaded from elsewhere either:
the browser is told so with every page.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from orchestrator.explore.site import Site

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_NAMES = ("127.0.0.1", "localhost")
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline';"
        b" img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Lets through what only reads and is addressed to this machine."""

    inner: Application
    site: Site

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
        elif not _is_local(scope["headers"]):
            await _answer(send, 403, f"interlace explore answers to {' and '.join(_NAMES)} only")
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, "interlace explore only reads")
        elif (target := self.site.redirect(scope["path"], scope["query_string"].decode("latin-1"))) is not None:
            await _answer(send, 302, "", headers=((b"location", target.encode("latin-1")),))
        else:
            await self.inner(scope, receive, _with_headers(send))


def _is_local(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    host = next((value.decode("latin-1") for name, value in headers if name == b"host"), "")
    return host.rpartition(":")[0] in _NAMES or host in _NAMES


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    plain = (b"content-type", b"text/plain; charset=utf-8")
    await send({"type": "http.response.start", "status": status, "headers": [plain, *headers, *_HEADERS]})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
