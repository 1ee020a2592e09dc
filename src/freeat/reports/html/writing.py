"""From folders to the file: gather, put in order, render, write whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from freeat.errors import InputError
from freeat.files.documents import write_text
from freeat.reports.html.document import make_document
from freeat.reports.html.gather import gather
from freeat.reports.html.page import render


@dataclass(frozen=True, kw_only=True)
class Written:
    """The page that was written: its size in bytes, its sections, and what could not be shown."""

    size: int
    sections: list[str]
    left_out: Sequence[str]


def write_report(path: Path, folders: Sequence[Path], *, title: str | None = None) -> Written:
    """One self-contained HTML page of all that lies in the folders."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {path}: the report is a page; give it a name that ends in .html")
    document = make_document(gather(folders), folders, title)
    page = render(document)
    write_text(path, page)
    return Written(
        size=len(page.encode()),
        sections=[section.key for section in document.sections],
        left_out=document.left_out,
    )
