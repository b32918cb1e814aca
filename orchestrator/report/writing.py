"""Writes a report's files."""

from dataclasses import replace
from pathlib import Path

from orchestrator.errors import InputError, RefusedError
from orchestrator.report.charts.theme import WIDE, Drawing
from orchestrator.report.document import Document
from orchestrator.report.drawing import png_alone, svg_alone
from workers.files.atomic import write_file
from workers.files.private import MISNAMED, make_private_folder, refuse_unsafe

_PICTURE = "its charts as pictures: --images DIR"
_DATA = "its numbers: interlace query speed --format csv"
_OTHER_KINDS = {
    ".pdf": "for a PDF, open the page in a browser and print it",
    ".md": "as Markdown: --markdown FILE.md",
    ".markdown": "as Markdown: --markdown FILE.md",
    **dict.fromkeys((".png", ".svg", ".jpg", ".jpeg"), _PICTURE),
    **dict.fromkeys((".csv", ".json", ".parquet", ".xlsx"), _DATA),
    **dict.fromkeys((".docx", ".txt", ".tex"), "as text: --markdown FILE.md"),
}


def check_targets(page: Path, images: Path | None, markdown: Path | None) -> None:
    """Refuse targets that could not be written, before any work.

    Raises:
        InputError: the path of a file is a folder, a link or a device, or the path of a folder is a file.
    """
    kind = page.suffix.lower()
    if kind in _OTHER_KINDS:
        raise InputError(
            f"-o {page}: a report is a web page: write -o {page.with_suffix('.html')}; {_OTHER_KINDS[kind]}"
        )
    for path, option in ((page, "-o"), (markdown, "--markdown")):
        if path is not None and path.is_dir() and not path.is_symlink():
            raise InputError(f"{option} {path}: a folder is there; name a file, such as {path / 'report.html'}")
        if path is not None:
            _refuse_unsafe(path, option)
    if images is not None and images.exists() and not images.is_dir():
        raise InputError(f"--images {images}: a file is there; name a folder")


def _refuse_unsafe(path: Path, option: str) -> None:
    try:
        refuse_unsafe(path)
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}; name another file") from error


def write_text(path: Path, text: str) -> None:
    """Write a file atomically and make its parent folders: a reader never finds half a page.

    Raises:
        InputError, RefusedError: it cannot be written, by its name or as the disk is now; the message has the reason.
    """
    _write(path, text.encode("utf-8", "backslashreplace"))


def write_images(report: Document, folder: Path) -> int:
    """Write each picture as PNG and as SVG, on white, with its title, and return the number of pictures.

    Raises:
        InputError, RefusedError: see `write_text`.
    """
    for picture in report.pictures:
        drawing = picture.draw(replace(WIDE, title=picture.title, subtitle=picture.detail))
        write_text(folder / f"{picture.key}.svg", svg_alone(drawing))
        _write(folder / f"{picture.key}.png", png_alone(drawing))
    return len(report.pictures)


def write_drawing(path: Path, made: Drawing) -> None:
    """Write one picture: as PNG where the name ends so, otherwise as SVG.

    Raises:
        InputError: it cannot be written.
    """
    if path.suffix.lower() == ".png":
        _write(path, png_alone(made))
    else:
        write_text(path, svg_alone(made))


def _write(path: Path, content: bytes) -> None:
    try:
        make_private_folder(path.parent)
        write_file(path, content)
    except OSError as error:
        kind = InputError if error.errno in MISNAMED else RefusedError
        raise kind(f"{path}: cannot be written ({error.strerror}); name another place") from error
