"""The terminal: plain tables and text in 80 columns. Words first, numbers second; colour is never the only sign.

Only formatting happens here; units are in the values' names everywhere else.
"""

import os
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Span, Text

from db.escaping import shown

WIDTH = 80  # the width of tables if the terminal's width is unknown


class _Terminal(Console):
    """A console on which all text is data: no markup, and control characters are made visible before layout.

    Styles are not text, so Rich's own codes stay. Bell, backspace, vertical tab, form feed and carriage return never
    come this far in a `Text`: Rich removes them.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        return super().render(_shown(renderable) if isinstance(renderable, Text) else renderable, options)

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(shown(text), **settings)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **settings: Any) -> None:
        """Print; wrap text for a terminal only: in a log, a search has to find whole lines."""
        if soft_wrap is None and not self.is_terminal and all(isinstance(each, str | Text) for each in objects):
            soft_wrap = True
        super().print(*objects, soft_wrap=soft_wrap, **settings)

    def on_broken_pipe(self) -> None:
        """Continue without output if the reader has closed the pipe, as `head` does: above all, a run goes on."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # the rest of its buffer goes there too
        os.close(nowhere)


def _shown(text: Text) -> Text:
    """Return the text with control characters made visible; a style covers the whole replacement of a character."""
    letters = [shown(letter) for letter in text.plain]
    places = list(accumulate(map(len, letters), initial=0))
    made = text.blank_copy("".join(letters))
    made.spans = [Span(places[span.start], places[min(span.end, len(letters))], span.style) for span in text.spans]
    return made


def console() -> Console:
    """Return standard output, with colours if it is a terminal and NO_COLOR is not set."""
    return _Terminal(highlight=False, markup=False, emoji=False, soft_wrap=False)


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Return a plain table: a rule under the head, no frame."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made
