"""Which servers with OpenAI's interface answer now at these addresses, and with which models."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from workers.errors import EngineError
from workers.http.watchdog import Timeouts

TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A server that answers."""

    url: str
    models: tuple[str, ...]  # empty: it lists none
    owners: frozenset[str] = frozenset()  # of the models, as it names them: vllm, omlx, llamacpp


def answering(urls: Iterable[str], *, timeout_s: float = TIMEOUT_S) -> dict[str, Answering]:
    """Ask all addresses at once for their models; the servers that answer as expected, by address."""
    wanted = list(dict.fromkeys(urls))
    if not wanted:
        return {}
    with ThreadPoolExecutor(max_workers=min(16, len(wanted))) as pool:
        found = pool.map(lambda url: _models(url, timeout_s), wanted)
        return {each.url: each for each in found if each is not None}


def _models(url: str, timeout_s: float) -> Answering | None:
    """A server's models; None if nothing answers there in time, or something else does."""
    from workers.http.client import Client

    try:
        client = Client(url, timeouts=Timeouts(connect_s=timeout_s, query_s=timeout_s))
        try:
            body = client.get_json("/v1/models")
        finally:
            client.close()
        listed = body.get("data") or ()
        owners = {each.get("owned_by") for each in listed}
        return Answering(
            url=url,
            models=tuple(str(each["id"]) for each in listed),
            owners=frozenset(owner for owner in owners if isinstance(owner, str)),
        )
    except (EngineError, TypeError, KeyError, AttributeError):
        return None
