"""A report as Markdown, for pasting into an issue or a blog: the same words and tables, and links to the pictures."""

import re
from collections.abc import Iterable

from db.escaping import in_markdown, shown
from orchestrator.report.document import Cell, Document, Fork, Grid, Section


def render_markdown(report: Document, *, images: str | None) -> str:
    """Return the report's text.

    Args:
        images: the folder of the pictures, as the text links to it; None: without pictures.
    """
    lines = [
        f"# {in_markdown(report.verdict)}",
        "",
        f"**{in_markdown(report.title)}** · {in_markdown(' · '.join(report.about))}",
        "",
    ]
    for word, text in report.warnings:
        lines += [f"> **{in_markdown(word)}.** {in_markdown(text)}", ""]
    for line in report.lines:
        figure = f" ({in_markdown(line.figure)})" if line.figure else ""
        lines.append(f"- **{line.sign} {in_markdown(line.verdict)}**: {in_markdown(line.sentence)}{figure}")
    for section in report.sections:
        lines += ["", *_section(section, images)]
    if report.absent:
        lines += ["", "## Not here, and why", ""]
        lines += [f"- {in_markdown(one.title)}: {in_markdown(one.reason)}" for one in report.absent]
    if report.made:
        lines += ["", f"_{in_markdown(report.made)}_"]
    return "\n".join([*lines, ""])


def _section(section: Section, images: str | None) -> Iterable[str]:
    yield from (f"## {in_markdown(section.title)}", "")
    if section.lead:
        yield from (in_markdown(section.lead), "")
    for picture in section.pictures:
        yield from (f"**{in_markdown(picture.title)}**", "")
        if images is not None:
            yield from (f"![{in_markdown(picture.title)}]({_address(images)}/{picture.key}.png)", "")
            yield from (in_markdown(picture.detail), "")
    for line in section.lines:
        yield f"- {in_markdown(line)}"
    for grid in section.grids:
        yield from ("", *_grid(grid))
    for fork in section.forks:
        yield from ("", *_fork(fork))
    if section.code:
        yield from ("", *_fenced(section.code))


def _grid(grid: Grid) -> Iterable[str]:
    if grid.caption:
        yield from (f"{in_markdown(grid.caption)}:", "")
    yield "| " + " | ".join(in_markdown(name) or " " for name in grid.columns) + " |"
    yield "|" + "".join("---:|" if at in grid.numeric else "---|" for at in range(len(grid.columns)))
    for row in grid.rows:
        yield "| " + " | ".join(in_markdown(_cell(value)) for value in row) + " |"


def _cell(value: str | Cell) -> str:
    if isinstance(value, Cell):
        return f"{value.sign} {value.text}" if value.sign else value.text
    return value


def _fork(fork: Fork) -> Iterable[str]:
    yield from (f"**{in_markdown(fork.title)}**: {in_markdown(fork.verdict)}. {in_markdown(fork.remark)}", "")
    yield from _fenced(f"{fork.before}\n--- the control went on:\n{fork.control}\n--- the arm went on:\n{fork.arm}")


def _fenced(text: str) -> Iterable[str]:
    """Yield a code block whose fence is longer than any run of backticks in it."""
    text = shown(text)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    yield from (f"{fence}text", text, fence)


def _address(folder: str) -> str:
    """Escape a path for a link, which spaces and brackets would end."""
    return "".join(character if character not in " ()<>" else f"%{ord(character):02X}" for character in folder)
