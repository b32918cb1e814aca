"""A report as Markdown, for pasting into an issue or a blog: the same words and tables, and links to the pictures."""

import re
from collections.abc import Iterable

from orchestrator.report.parts import Cell, Fork, Grid, Report, Section
from orchestrator.report.words import shown, shown_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")
_MENTION = re.compile(r"@(?=\w)")


def render_markdown(report: Report, *, images: str | None) -> str:
    """The report's text.

    Args:
        images: the folder of the pictures as the text is to name it; None: without pictures.
    """
    lines = [f"# {_plain(report.verdict)}", "", f"**{_plain(report.title)}** · {_plain(' · '.join(report.about))}", ""]
    for word, text in report.warnings:
        lines += [f"> **{_plain(word)}.** {_plain(text)}", ""]
    for line in report.lines:
        figure = f" ({_plain(line.figure)})" if line.figure else ""
        lines.append(f"- **{line.sign} {_plain(line.verdict)}**: {_plain(line.sentence)}{figure}")
    for section in report.sections:
        lines += ["", *_section(section, images)]
    if report.absent:
        lines += ["", "## Not here, and why", ""]
        lines += [f"- {_plain(one.title)}: {_plain(one.reason)}" for one in report.absent]
    return "\n".join([*lines, "", f"_{_plain(report.made)}_", ""])


def _section(section: Section, images: str | None) -> Iterable[str]:
    yield from (f"## {_plain(section.title)}", "")
    if section.lead:
        yield from (_plain(section.lead), "")
    for picture in section.pictures:
        yield from (f"**{_plain(picture.title)}**", "")
        if images is not None:
            yield from (f"![{_plain(picture.title)}]({_address(images)}/{picture.key}.png)", "")
        yield from (_plain(picture.detail), "")
    for line in section.lines:
        yield f"- {_plain(line)}"
    for grid in section.grids:
        yield from ("", *_grid(grid))
    for fork in section.forks:
        yield from ("", *_fork(fork))
    if section.code:
        yield from ("", *_fenced(section.code))


def _grid(grid: Grid) -> Iterable[str]:
    if grid.caption:
        yield from (f"{_plain(grid.caption)}:", "")
    yield "| " + " | ".join(_plain(name) or " " for name in grid.columns) + " |"
    yield "|" + "".join("---:|" if at in grid.numeric else "---|" for at in range(len(grid.columns)))
    for row in grid.rows:
        yield "| " + " | ".join(_plain(value.text if isinstance(value, Cell) else value) for value in row) + " |"


def _fork(fork: Fork) -> Iterable[str]:
    yield from (f"**{_plain(fork.title)}**: {_plain(fork.verdict)}. {_plain(fork.remark)}", "")
    yield from _fenced(f"{fork.before}\n--- the control went on:\n{fork.control}\n--- the arm went on:\n{fork.arm}")


def _fenced(text: str) -> Iterable[str]:
    """A block whose fence is longer than any run of backticks in it."""
    text = shown(text)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    yield from (f"{fence}text", text, fence)


def _plain(text: str) -> str:
    """One line in which nothing is markup, a reference or a mention."""
    escaped = _SPECIAL.sub(r"\\\1", shown_line(text))
    return _MENTION.sub("@\u200c", escaped)


def _address(folder: str) -> str:
    """A path as a link: spaces and brackets would end it."""
    return "".join(character if character not in " ()<>" else f"%{ord(character):02X}" for character in folder)
