"""A sign that a command is at work, on a terminal whose command has written nothing for half a second."""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.live import Live

AFTER_S = 0.5
WORDS = "working ..."


class Spinner:
    """A context manager: turns on a terminal until the command's first output, and leaves no trace.

    Args:
        stream: where it turns; nothing is written to a stream that is not a terminal.
    """

    def __init__(self, stream: TextIO, *, after_s: float = AFTER_S) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._over = False
        self._live: Live | None = None
        self._timer = threading.Timer(after_s, self._turn)
        self._timer.daemon = True
        self.turns = threading.Event()  # set once it turns

    def __enter__(self) -> "Spinner":
        if self._stream.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop turning, or never begin. May be called again."""
        if self._over:
            return
        self._over = True
        self._timer.cancel()
        with self._lock:
            if self._live is not None:
                self._live.stop()

    def _turn(self) -> None:
        with self._lock:
            if self._over:
                return
            from rich.console import Console
            from rich.live import Live
            from rich.spinner import Spinner as Turning

            # Standard output stays as it is: the spinner ends before anything is written there.
            settings: dict[str, Any] = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
            self._live = Live(Turning("dots", text=WORDS), console=Console(file=self._stream), **settings)
            self._live.start()
        self.turns.set()


class EndingStream:
    """A text stream whose first write ends a spinner; otherwise it behaves as the wrapped stream."""

    def __init__(self, stream: TextIO, spinner: Spinner) -> None:
        self._stream, self._spinner = stream, spinner

    def write(self, text: str) -> int:
        self._spinner.end()
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
