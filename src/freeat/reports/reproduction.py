"""The files of a reproduction: one JSON of everything, the tables, the figures, the claims."""

from pathlib import Path
from typing import Any

from freeat.files.documents import write_json, write_text
from freeat.reports.claims import claims_markdown
from freeat.reports.paper_figures import draw_figure
from freeat.reports.paper_tables import comma_separated, latex, markdown

FORMAT = 1
WRITTEN = {"md": markdown, "tex": latex, "csv": comma_separated}


def write_outputs(document: dict[str, Any], folder: Path) -> list[Path]:
    """Write what people read into ``folder``; returns the paths, ``claims.md`` first."""
    paths = [folder / "claims.md"]
    write_text(paths[0], claims_markdown(document))
    for table in document["tables"]:
        for ending, text in WRITTEN.items():
            path = folder / "tables" / f"{table['name']}.{ending}"
            write_text(path, text(table))
            paths.append(path)
    for figure in document["figures"]:
        paths += draw_figure(figure, folder / "figures")
    return paths


def write_document(document: dict[str, Any], folder: Path) -> Path:
    """Write ``reproduction.json``: after the other files, so that the time it names has theirs in it."""
    path = folder / "reproduction.json"
    write_json(path, document, format=FORMAT)
    return path
