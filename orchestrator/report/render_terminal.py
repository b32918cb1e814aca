"""An audit or a report on the terminal, from 50 columns on: the document's words, tables and sketches."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.box import ASCII, ROUNDED
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from orchestrator.report.document import Cell, Document, Fork, Grid, Line, Section, Stroke, text_of
from orchestrator.report.sketches import plain_letters
from orchestrator.report.words import shortened, visible
from orchestrator.views.terminal import table

# The style for each tone of a text.
STYLES = {
    "good": "bold green",
    "calm": "cyan",
    "doubt": "yellow",
    "bad": "bold red",
    "odd": "magenta",
    "muted": "dim",
}
FORK_CHARACTERS = 24  # of each text around a divergence
MOST_DETAILED = 5  # arms; of more, each has one line
LEAST_NAME = 9  # characters of an arm's name in a table; a narrower table has its rows stacked
MOST_ANSWERED = 20  # arms in the answer; the tables have them all
_NARROW = {"⚠": "!"}  # some terminals draw a sign over its neighbour
ALARMS = ("Simulated",)  # warnings that are printed in red


def print_document(document: Document, out: Console) -> None:
    """Print the whole document, the answer last, where it stays in sight."""
    printer = _Printer(out)
    printer.head(document)
    for section in document.sections:
        printer.line("")
        printer.section(section)
    for one in document.absent:
        printer.line("")
        printer.line(one.title, "bold")
        printer.line(f"Nothing: {one.reason}.")
    if document.made:
        printer.line("")
        printer.line(document.made, "dim")
    printer.answer(document)


class _Printer:
    """Writes to one console, with characters that its encoding has."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.plain = not out.encoding.lower().startswith("utf")

    def line(self, text: str, style: str = "") -> None:
        self.text((text, style))

    def text(self, *parts: tuple[str, str]) -> None:
        """Print the pieces of one line, each with its style."""
        self.out.print(Text.assemble(*((self.letters(part), style) for part, style in parts)))

    def letters(self, text: str) -> str:
        return plain_letters(text) if self.plain else text

    def head(self, document: Document) -> None:
        """The run, and what to know before reading on."""
        self.line("")
        self.line(", ".join((document.title, *document.about)), "bold")
        for word, text in document.warnings:
            self.line(f"{word.upper()}: {text}", "bold red" if word in ALARMS else "bold yellow")

    def answer(self, document: Document) -> None:
        """The verdict in one sentence, the arms in a box, and the next commands unbroken, to be copied."""
        self.line("")
        self.line(document.verdict, "bold")
        detailed = len(document.lines) <= MOST_DETAILED
        shown = document.lines[:MOST_ANSWERED]
        if not self.out.is_terminal:
            for line in shown:
                self.text(*((part.replace("\n", "\n  "), style) for part, style in _arm_words(line, detailed=detailed)))
        elif shown:
            self.out.print(self._box(shown, detailed=detailed))
        if (more := len(document.lines) - len(shown)) > 0:
            self.line(f"and {more} more, in the tables of --full", "dim")
        widest = max((len(each.purpose) for each in document.commands), default=0)
        for each in document.commands:
            command = Text.assemble((f"{each.purpose:{widest}}  ", "dim"), self.letters(each.text))
            self.out.print(command, soft_wrap=True)

    def _box(self, lines: Iterable[Line], *, detailed: bool) -> Panel:
        """The arms in a frame, each text beside its sign."""
        grid = Table.grid(padding=(0, 1))
        for line in lines:
            (sign, style), *words = _arm_words(line, detailed=detailed)
            grid.add_row(
                Text(self.letters(sign.strip()), style=style),
                Text.assemble(*((self.letters(part), style) for part, style in words)),
            )
        return Panel(grid, box=ASCII if self.plain else ROUNDED, expand=False)

    def section(self, section: Section) -> None:
        self.line(section.title, "bold")
        if section.lead:
            self.line(section.lead)
        for grid in section.grids:
            self.grid(grid)
        for picture in section.pictures:
            if picture.sketch is not None and (strokes := picture.sketch(self.out.width)):
                self.line(picture.title)
                self.strokes(strokes)
        for fork in section.forks:
            self.line(_fork_words(fork))
        for line in section.lines:
            self.line(line)
        if section.code:
            self.line(section.code)

    def strokes(self, strokes: Iterable[Stroke]) -> None:
        for stroke in strokes:
            style = STYLES[stroke.tone] if stroke.tone else ""
            self.out.print(Text(self.letters(stroke.text), style=style))

    def grid(self, grid: Grid) -> None:
        """Print a table. With a caption, its columns of long texts are left out; else they appear under each row."""
        if grid.caption:
            self.line(grid.caption, "dim")
        made = None if grid.below and (not grid.caption or grid.folded) else self._table(grid)
        if made is not None:
            self.out.print(made)
            return
        for row in grid.rows:
            self._stacked(grid, row)

    def _table(self, grid: Grid) -> Table | None:
        """Make a table whose words are whole, names of arms shortened if that is needed; None: it is too wide."""
        heads = [self._head(grid, at) for at in grid.beside]
        fitting = self._widths(grid, heads)
        if fitting is None:
            return None
        made = table(*heads)
        made.show_header = any(heads)
        made.padding = (0, 1, 0, 0)
        for at, column, width in zip(grid.beside, made.columns, fitting, strict=True):
            column.justify = "right" if at in grid.numeric else "left"
            column.width = width
        before: Sequence[str | Cell] | None = None
        for row in grid.rows:
            repeated = before is not None and text_of(before[0]) == text_of(row[0])
            first = "" if repeated else _within(row[0], fitting[0])
            made.add_row(self._cell(first), *(self._cell(row[at]) for at in grid.beside[1:]))
            before = row
        return made

    def _widths(self, grid: Grid, heads: Sequence[str]) -> Sequence[int] | None:
        """Return the widths at which no word is broken but long names; None: there are none."""
        cells = [[head, *(text_of(row[at]) for row in grid.rows)] for head, at in zip(heads, grid.beside, strict=True)]
        whole = [max(len(line) for text in column for line in text.split("\n")) for column in cells]
        widths = [max((len(word) for text in column for word in text.split()), default=0) for column in cells]
        room = self.out.width - len(widths) - sum(widths)
        if room < 0:
            widths[0], room = widths[0] + room, 0
            return widths if widths[0] >= LEAST_NAME else None
        for at in sorted(range(len(widths)), key=lambda at: whole[at] - widths[at]):  # as many unbroken lines as can be
            more = min(whole[at] - widths[at], room)
            widths[at], room = widths[at] + more, room - more
        return widths

    def _head(self, grid: Grid, column: int) -> str:
        """Return a column's head, with one word per line if names would have to be broken otherwise."""
        head = self.letters(grid.columns[column])
        natural = sum(max(len(grid.columns[at]), grid.longest(at)) + 1 for at in grid.beside)
        return head.replace(" ", "\n") if column in grid.numeric and natural > self.out.width else head

    def _stacked(self, grid: Grid, row: Sequence[str | Cell]) -> None:
        """Print a row whose texts are too long to be side by side: each one under the first, with its name."""
        self.out.print(self._cell(row[0]))
        for at in range(1, len(grid.columns)):
            if grid.says(tuple(row), at):
                text = Text.assemble((f"{grid.columns[at]}: ", "dim"), self._cell(row[at]))
                self.out.print(Padding(text, (0, 0, 0, 2), expand=False))

    def _cell(self, value: str | Cell) -> Text:
        style = STYLES[value.tone] if isinstance(value, Cell) and value.tone else ""
        return Text(self.letters(text_of(value)), style=style)


def _within(cell: str | Cell, width: int) -> str | Cell:
    """Return a cell whose words fit a width; a longer one is cut in its middle."""
    words = [shortened(word, width) for word in text_of(cell).split(" ")]
    return replace(cell, text=" ".join(words)) if isinstance(cell, Cell) else " ".join(words)


def _arm_words(line: Line, *, detailed: bool) -> Sequence[tuple[str, str]]:
    """An arm's answer in pieces with their styles, the sign first; with details, these stand in a line of their own."""
    tone, sign = STYLES[line.tone], f"{_NARROW.get(line.sign, line.sign)} "
    if not line.arm:
        return ((sign, tone), (f"{line.verdict}: ", tone), (line.sentence, ""))
    answer = line.answer if line.verdict == line.answer else f"{line.answer} ({line.verdict})"
    ratio = f", {line.ratio}" if line.ratio else ""
    details = "; ".join(part for part in (line.absolute, line.because, line.advice) if part)
    under = f"\n{details}" if detailed and details else ""
    return ((sign, tone), (line.arm, "bold"), (": ", ""), (answer, tone), (ratio, ""), (under, "dim"))


def _fork_words(fork: Fork) -> str:
    before = visible(fork.before[-FORK_CHARACTERS:])
    after = f"after «{before}» " if before else ""
    control, arm = (visible(shortened(each, FORK_CHARACTERS)) for each in (fork.control, fork.arm))
    return f"{fork.title}: {after}«{control}» became «{arm}»; {fork.verdict}. {fork.remark}"
