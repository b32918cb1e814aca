"""Errors of a server that does not answer, answers too late, or refuses."""

import re

from workers.errors import EngineError, FaultKind
from workers.http.answer import kind_of
from workers.http.foreign_body import OTHER_ADDRESS

_STATUS_REMEDIES = {
    401: "name the variable that holds the key in engine.api_key_env",
    403: "name the variable that holds the key in engine.api_key_env",
    404: "check engine.url and engine.model",
    405: "check engine.url",
}


_LOG = "see the server's log; if it speaks TLS, write https:// into engine.url"
# Of a failed exchange: a pattern of the error's class and text, the fault in words, and the remedy. The first one fits.
_EXCHANGES = (
    ("(Connect|Read|Pool)Timeout:", "no answer in time ({kind})", ""),
    ("RemoteProtocolError: peer closed", "the connection ended in the middle of the answer: {text}", ""),
    ("RemoteProtocolError: Server disconnected", "it closed the connection without an answer", OTHER_ADDRESS),
    ("RemoteProtocolError:", "its answer is not valid HTTP: {text}", OTHER_ADDRESS),
    (".*CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted ({text})", "use one of a known authority, or http"),
    (".*(WRONG_VERSION_NUMBER|EOF occurred|UNEXPECTED_EOF|RECORD_LAYER)", "it does not speak TLS ({text})",
     "write http:// into engine.url"),
    ("ConnectError:", "{text}", "is the server running?"),
    ("ReadError:", "{text}", _LOG),
)  # fmt: skip


def explained(error: Exception) -> tuple[str, str]:
    """Describe a failed exchange by HTTP in words, and name the remedy, if there is one."""
    kind, text = type(error).__name__, str(error) or type(error).__name__
    for pattern, words, remedy in _EXCHANGES:
        if re.match(pattern, f"{kind}: {text}"):
            return words.format(kind=kind, text=text), remedy
    return text, ""


class Unreachable(EngineError):
    """Nobody answers at the address."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(FaultKind.generation_failed, message, remedy=remedy)


class TooLate(Unreachable):
    """Somebody took the request, and did not answer in time."""


class StatusError(EngineError):
    """Raises an error with the server's own words when it refuses a request."""

    def __init__(self, url: str, status: int, said: str) -> None:
        kind = kind_of(said, FaultKind.generation_failed)
        super().__init__(kind, f"{url}: HTTP {status}: {said}", remedy=_STATUS_REMEDIES.get(status, ""))
        self.status = status
