"""Errors of a server that does not answer, answers too late, or refuses."""

from workers.errors import EngineError, FaultKind
from workers.http.answer import kind_of

_STATUS_REMEDIES = {
    401: "name the variable that holds the key in engine.api_key_env",
    403: "name the variable that holds the key in engine.api_key_env",
    404: "check engine.url and engine.model",
    405: "check engine.url",
}


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
