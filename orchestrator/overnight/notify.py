"""Telling somebody that the night has ended: a webhook, a command, or both, as the environment says.

    INTERLACE_NOTIFY_WEBHOOK   a URL that takes a POST of JSON: {"text": one line, "summary": Markdown, "exit_code": n}
    INTERLACE_NOTIFY_COMMAND   a command line; it gets the summary file as its last argument and the text on its input

They are settings of a person and a machine, not of one plan, and an address may be a secret: no plan stores them. A
notification that fails is a note; the night has ended all the same.
"""

import json
import os
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

WEBHOOK = "INTERLACE_NOTIFY_WEBHOOK"
COMMAND = "INTERLACE_NOTIFY_COMMAND"
TIMEOUT_S = 20.0


def notify(
    headline: str, text: str, path: Path, *, exit_code: int, environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Send what is configured. What failed, in one line each; never the address itself."""
    ways: list[tuple[str, Callable[[str], str | None]]] = [
        (WEBHOOK, lambda url: _post(url, {"text": headline, "summary": text, "exit_code": exit_code})),
        (COMMAND, lambda command: _run(command, text, path)),
    ]
    found = []
    for name, send in ways:
        value = environment.get(name, "").strip()
        if value and (problem := send(value)) is not None:
            found.append(f"{name}: {problem}")
    return found


def _post(url: str, body: Mapping[str, object]) -> str | None:
    if urlsplit(url).scheme not in ("http", "https"):
        return "not an http or https address"
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        return f"answered {error.code}"
    except (OSError, ValueError) as error:
        return f"not reached: {getattr(error, 'reason', error)}"


def _run(command: str, text: str, path: Path) -> str | None:
    try:
        words = shlex.split(command)
        done = subprocess.run(
            [*words, str(path)],
            input=text,
            encoding="utf-8",
            errors="replace",
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except ValueError as error:
        return f"cannot be read: {error}"
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"did not end within {TIMEOUT_S:g} s"
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        return f"ended with {done.returncode}" + (f": {last[0]}" if last else "")
    return None
