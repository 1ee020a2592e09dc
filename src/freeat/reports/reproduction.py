"""The files of a reproduction: one JSON of everything, the tables, the figures, the claims."""

from pathlib import Path
from typing import Any

from freeat.files import write_json, write_text
from freeat.reports.claims import claims_markdown
from freeat.reports.paper_figures import draw_figure
from freeat.reports.paper_tables import comma_separated, latex, markdown

FORMAT = 1
WRITTEN = {"md": markdown, "tex": latex, "csv": comma_separated}


def write_reproduction(document: dict[str, Any], folder: Path) -> list[Path]:
    """Write all of it into ``folder``; returns the paths, ``reproduction.json`` first."""
    paths = [folder / "reproduction.json", folder / "claims.md"]
    write_json(paths[0], document, format=FORMAT)
    write_text(paths[1], claims_markdown(document))
    for table in document["tables"]:
        for ending, text in WRITTEN.items():
            path = folder / "tables" / f"{table['name']}.{ending}"
            write_text(path, text(table))
            paths.append(path)
    for figure in document["figures"]:
        paths += draw_figure(figure, folder / "figures")
    return paths
