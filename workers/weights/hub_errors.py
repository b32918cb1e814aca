"""Errors between a hub and this machine: which of them pass, and all of them in plain words.

Every error names the repository, its page and the remedy.
"""

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from workers.errors import EngineError, FaultKind

LONGEST_WAIT_S = 120.0  # of those that a hub asks for by Retry-After
_TRANSIENT = (408, 429, 500, 502, 503, 504)

T = TypeVar("T")


class HubError(EngineError):
    """A checkpoint could not be fetched.

    Args:
        lasting: whether only another plan or an act of the user helps; otherwise the same may succeed later.
    """

    def __init__(self, message: str, *, remedy: str, lasting: bool) -> None:
        super().__init__(FaultKind.checkpoint_missing, message, remedy=remedy)
        self.lasting = lasting


class FetchStopped(Exception):
    """A fetch was asked to stop. What has come stays."""


# ---- where the hub and its cache are ----


def endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def cache_folder() -> Path:
    """The hub's cache on this machine."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def page_of(hub_id: str) -> str:
    """The address of a repository's page."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{hub_id}"


# ---- attempts and errors ----


def within(limit_s: float, action: Callable[[], T]) -> T:
    """The action's result, in a thread of its own: the client has calls without a time-out.

    Raises:
        TimeoutError: there is none after this time; the thread ends with the process.
        Exception: the action's own.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(action())
        except Exception as error:  # noqa: BLE001 - the thread's boundary: raised below
            errors.append(error)

    thread = threading.Thread(target=work, name="hub", daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    return results[0]


def patiently(action: Callable[[], T], waits_s: Sequence[float], wait: Callable[[float], object]) -> T:
    """Repeat an action that fails for a reason that passes."""
    for wait_s in waits_s:
        try:
            return action()
        except FetchStopped:
            raise
        except Exception as error:
            if not is_transient(error):
                raise
            wait(wait_of(error, wait_s))
    return action()


def is_transient(error: Exception) -> bool:
    """Return whether an error may be gone at the next attempt: a busy hub, a cut connection, a file cut short."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]

    if isinstance(error, OfflineModeIsEnabled):
        return False
    if isinstance(error, HfHubHTTPError):
        return _status(error) in _TRANSIENT
    return isinstance(error, HTTPError) or (isinstance(error, OSError) and error.errno is None)


def wait_of(error: Exception, default_s: float) -> float:
    response = getattr(error, "response", None)
    asked = str(response.headers.get("Retry-After", "")) if response is not None else ""
    return min(float(asked), LONGEST_WAIT_S) if asked.isdecimal() and len(asked) < 9 else default_s


def _status(error: Any) -> int | None:
    return None if getattr(error, "response", None) is None else int(error.response.status_code)


@contextlib.contextmanager
def plain_errors(hub_id: str, revision: str | None) -> Iterator[None]:
    """Turn whatever the client raises into a HubError that a person understands."""
    try:
        yield
    except (HubError, FetchStopped):
        raise
    except Exception as error:
        raise _in_words(error, hub_id, revision) from error


def _in_words(error: Exception, hub_id: str, revision: str | None) -> HubError:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    if isinstance(error, HFValidationError):
        return lasting(hub_id, "is not a valid id", "write owner/model")
    if isinstance(error, OfflineModeIsEnabled):
        return HubError(
            f"hub checkpoint {hub_id} is not complete on this machine, and HF_HUB_OFFLINE is set",
            remedy=f"unset HF_HUB_OFFLINE and run: interlace checkpoint fetch {hub_id}",
            lasting=False,
        )
    if isinstance(error, HfHubHTTPError):
        return _refused(error, hub_id, revision)
    if isinstance(error, OSError) and error.errno is not None:
        return _disk(error, hub_id)
    return _unreachable(error, hub_id)


def _refused(error: Any, hub_id: str, revision: str | None) -> HubError:
    """The words for what a hub answers with a status of 400 or more."""
    from huggingface_hub import errors, get_token

    page, status = page_of(hub_id), _status(error)
    has_token = get_token() is not None
    if isinstance(error, errors.GatedRepoError):
        what = f"is gated, and {'the account of your token' if has_token else 'nobody without a token'} has no access"
        how = "" if has_token else ", then set HF_TOKEN, or run `hf auth login`"
        return lasting(hub_id, what, f"accept its terms on that page{how}")
    if isinstance(error, errors.RevisionNotFoundError):
        what = f"has no revision {revision or 'main'}"
        return HubError(
            f"hub checkpoint {hub_id} {what}; see {page}/commits/main",
            remedy="correct checkpoint.revision: a branch, a tag or a whole commit",
            lasting=True,
        )
    if status == 401 and has_token and "credentials" in str(error.response.headers.get("X-Error-Message")):
        what = "cannot be asked for: the hub does not accept your token"
        return lasting(hub_id, what, "set HF_TOKEN to a valid one, or unset it")
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        token = "your token does not open it" if has_token else "no token is set: HF_TOKEN, or `hf auth login`"
        return lasting(hub_id, f"does not exist, or is private and {token}", "check the id on that page")
    if status is not None and status in _TRANSIENT:
        what = "too many requests" if status == 429 else f"status {status}"
        helps = "; a token (HF_TOKEN) is allowed more" if status == 429 and not has_token else ""
        return HubError(
            f"hub checkpoint {hub_id}: the hub answers with {what}, also after several attempts; see {page}",
            remedy=f"repeat later, what has come stays{helps}",
            lasting=False,
        )
    return lasting(hub_id, f"is refused by the hub (status {status})", "open that page to see why")


def _disk(error: OSError, hub_id: str) -> HubError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "free some space" if full else "make it writable"
    return HubError(
        f"hub checkpoint {hub_id}: the hub's cache {cache_folder()} cannot be written"
        f" ({error.strerror or error}; {error.filename or 'no file named'})",
        remedy=f"{remedy}, or set HF_HOME to another folder",
        lasting=False,
    )


def _unreachable(error: Exception, hub_id: str) -> HubError:
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    words = " ".join(str(error).split())[:160]
    if isinstance(error, HTTPError | OSError):
        return HubError(
            f"hub checkpoint {hub_id}: {endpoint()} cannot be reached or stops answering"
            f" ({type(error).__name__}{f': {words}' if words else ''}); see {page_of(hub_id)}",
            remedy="check the network and HF_ENDPOINT, and repeat: what has come stays",
            lasting=False,
        )
    return HubError(
        f"hub checkpoint {hub_id}: {endpoint()} does not answer as a hub does ({type(error).__name__}: {words})",
        remedy="check HF_ENDPOINT, and whether a proxy or a sign-in page stands in between",
        lasting=False,
    )


def lasting(hub_id: str, what: str, remedy: str) -> HubError:
    return HubError(f"hub checkpoint {hub_id} {what}; see {page_of(hub_id)}", remedy=remedy, lasting=True)
