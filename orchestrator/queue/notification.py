"""Send a notification when the night has ended: to a webhook, a command, or both, as the environment configures.

    INTERLACE_NOTIFY_WEBHOOK   a URL that takes a POST of JSON: {"text": one line, "summary": Markdown, "exit_code": n}
    INTERLACE_NOTIFY_COMMAND   a command line; it gets the summary file as its last argument and the text on its input

They are settings of a person and a machine, not of a plan, and an address may be a secret: no plan stores them and no
message shows them. A notification that fails becomes a note, after a bounded time: the night has ended all the same.
"""

import json
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from workers.masking import KNOWN, mask
from workers.settings import is_address

WEBHOOK = "INTERLACE_NOTIFY_WEBHOOK"
COMMAND = "INTERLACE_NOTIFY_COMMAND"
TIMEOUT_S = 20.0  # per channel, whatever the other side does
_SHOWN = 300


def notify(
    headline: str, text: str, path: Path, *, exit_code: int, environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Send the configured notifications; return one line per failure, never with the address itself."""
    ways: list[tuple[str, Callable[[str], str | None]]] = [
        (WEBHOOK, lambda url: _post(url, {"text": headline, "summary": text, "exit_code": exit_code})),
        (COMMAND, lambda command: _run(command, text, path)),
    ]
    found = []
    for name, send in ways:
        value = environment.get(name, "").strip()
        if value and (problem := _bounded(send, value)) is not None:
            found.append(f"{name}: {mask(problem)[:_SHOWN]}")
    return found


def _bounded(send: Callable[[str], str | None], value: str) -> str | None:
    """Return the problem, after the time-out at the latest: a server may trickle its answer, a resolver may hang."""
    problems: list[str | None] = []

    def work() -> None:
        try:
            problems.append(send(value))
        except Exception as error:  # noqa: BLE001 - the night has ended all the same; the text may show the address
            problems.append(f"failed ({type(error).__name__})")

    thread = threading.Thread(target=work, name="notify", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return problems[0] if problems else f"did not end within {TIMEOUT_S:g} s"


def _post(url: str, body: Mapping[str, object]) -> str | None:
    import httpx

    KNOWN.add(url)
    if not is_address(url):
        return "is not a valid http or https address"
    try:
        with (
            httpx.Client(timeout=TIMEOUT_S) as client,
            client.stream(
                "POST", url, content=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
            ) as response,
        ):
            status = response.status_code  # the rest of the answer is not read
    except httpx.TimeoutException:
        return f"no answer within {TIMEOUT_S:g} s"
    except httpx.HTTPError as error:
        return f"not reached: {error}"
    except (httpx.InvalidURL, ValueError):  # its text would show parts of the address
        return "is not a valid http or https address, or the environment's proxy is not"
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed; set the final address"
    return None if status < 400 else f"answered {status}"


def _run(command: str, text: str, path: Path) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"is not a valid command line: {error}"
    try:
        done = subprocess.run(
            [*words, str(path)],
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"did not end within {TIMEOUT_S:g} s"
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"ended with {done.returncode}" + (f": {last[0]}" if last else "")
    return None
