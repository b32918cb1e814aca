"""The content of an audit or a report, as values: the terminal, Markdown and the page render the same ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.report.charts.theme import Drawing, Layout
from orchestrator.report.words import MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """A line of characters with a name before it and numbers after it."""

    text: str
    tone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart: drawn for each layout that it is needed in, and with characters."""

    key: str  # unique in the report: the name of its file
    title: str  # its subject, as a sentence
    detail: str  # units, number of rounds, how to read it
    draw: Callable[[Layout], Drawing]
    sketch: Callable[[int], Sequence[Stroke]] | None = None  # of a width in characters; None: no sketch


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A table's cell with a colour; its text says the same."""

    text: str
    tone: str | None = None
    code: bool = False
    sign: str | None = None  # beside the text if there is room for both


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    numeric: frozenset[int] = frozenset()  # columns that are right-aligned
    caption: str | None = None  # a table with a caption can be folded
    below: frozenset[int] = frozenset()  # columns of long texts, which are shown under their row
    extra: bool = False  # more than an audit shows
    folded: bool = False  # closed on a page until somebody opens it; it needs a caption

    @property
    def beside(self) -> tuple[int, ...]:
        """Return the columns that are shown side by side."""
        return tuple(at for at in range(len(self.columns)) if at not in self.below)

    def says(self, row: tuple[str | Cell, ...], column: int) -> bool:
        """Return whether the row's cell in this column is not empty."""
        return text_of(row[column]) not in ("", MISSING)

    def longest(self, column: int) -> int:
        """Return the length of the column's longest cell in characters."""
        return max((len(text_of(row[column])) for row in self.rows), default=0)

    def without_empty(self) -> "Grid":
        """Return the table without columns that are empty in all rows."""
        kept = [at for at in range(len(self.columns)) if any(self.says(row, at) for row in self.rows)]
        return replace(
            self,
            columns=tuple(self.columns[at] for at in kept),
            rows=tuple(tuple(row[at] for at in kept) for row in self.rows),
            numeric=frozenset(new for new, at in enumerate(kept) if at in self.numeric),
            below=frozenset(new for new, at in enumerate(kept) if at in self.below),
        )


def text_of(cell: str | Cell) -> str:
    """Return a cell's text."""
    return cell.text if isinstance(cell, Cell) else cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Two texts with a common start."""

    title: str
    arm_name: str
    place: int  # of the first difference
    tone: str
    verdict: str
    before: str
    control: str
    arm: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One subject."""

    key: str
    title: str
    lead: str | None = None  # what to know before looking
    pictures: tuple[Picture, ...] = ()
    grids: tuple[Grid, ...] = ()
    forks: tuple[Fork, ...] = ()
    lines: tuple[str, ...] = ()  # remarks
    code: str | None = None  # to be copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One comparison under the verdict."""

    sign: str
    tone: str
    verdict: str
    sentence: str
    figure: str
    arm: str = ""  # what follows is empty if it is not about one arm
    answer: str = ""  # in a word or two: faster, undecided
    ratio: str = ""  # with its interval
    absolute: str = ""  # the arm's rate or time, and the control's
    because: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line to type next."""

    purpose: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A section without content, and the reason."""

    title: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The whole document about a run."""

    title: str
    about: tuple[str, ...]  # machine, date, size: one line
    warnings: tuple[tuple[str, str], ...]  # a word and its meaning
    verdict: str  # one sentence
    lines: tuple[Line, ...]
    sections: tuple[Section, ...]
    commands: tuple[Command, ...] = ()  # that a reader is likely to want next
    absent: tuple[Absent, ...] = field(default=())
    made: str = ""  # the program, the time and the run

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(picture for section in self.sections for picture in section.pictures)
