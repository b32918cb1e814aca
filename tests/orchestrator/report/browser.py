"""A headless Chromium over its DevTools pipe: opens a file, says what it logged and asked for, takes pictures.

Standard library only. Messages are JSON texts that end with a zero byte, on the browser's file descriptors 3 and 4.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DEADLINE_S = 60.0
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


def chromium() -> str:
    """Find the browser; without one the test is skipped, unless CI or INTERLACE_REQUIRE_CHROMIUM demands it."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        demanded = os.environ.get("CI") and sys.platform == "linux"  # a Mac keeps its browsers off the PATH
        if demanded or os.environ.get("INTERLACE_REQUIRE_CHROMIUM"):
            pytest.fail("no Chromium on PATH: apt-get install chromium")
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    return found


@dataclass(slots=True)
class Page:
    """One tab of a browser that was started for it."""

    process: subprocess.Popen[bytes]
    to: int
    of: int
    session: str | None = None
    logged: list[str] = field(default_factory=list)  # console messages, exceptions, refusals
    asked: list[str] = field(default_factory=list)  # addresses
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _unread: bytes = b""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self.visit(path.resolve().as_uri())

    def visit(self, url: str) -> None:
        """Load an address and wait until it is there."""
        self.call("Page.navigate", url=url)
        while True:
            event = self._next()
            self._note(event)
            if event.get("method") == "Page.loadEventFired":
                return

    def evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def show(self, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Be as wide as this, by day or by night."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, target: Path | None = None) -> bytes:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16_000), "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        picture = base64.b64decode(answer["data"])
        if target is not None:
            target.write_bytes(picture)
        return picture

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + DEADLINE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self.of], [], [], max(until - time.monotonic(), 0.0))
            assert ready, "the browser says nothing"
            chunk = os.read(self.of, 1 << 20)
            assert chunk, f"the browser ended with {self.process.wait()}"
            self._unread += chunk
        message, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Log.entryAdded":
                self.logged.append(f"{params['entry']['level']}: {params['entry']['text']}")
            case "Runtime.consoleAPICalled":
                self.logged.append(f"console.{params['type']}: {params['args']}")
            case "Runtime.exceptionThrown":
                self.logged.append(str(params["exceptionDetails"]))
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])


@contextmanager
def opened(path: Path, profile: Path) -> Iterator[Page]:
    """A browser with the file in it; ended afterwards, whatever happens."""
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    # The browser wants the two ends as 3 and 4, which may be taken here: a shell moves them.
    script = f'exec "$0" "$@" 3<&{command_read} 4>&{answer_write}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", script, chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(command_read, answer_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_read)
    os.close(answer_write)
    page = Page(process=process, to=command_write, of=answer_read)
    try:
        target = page.call("Target.createTarget", url="about:blank")["targetId"]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            page.call(f"{domain}.enable")
        page.open(path)
        yield page
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(command_write)
        os.close(answer_read)
