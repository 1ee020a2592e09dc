"""What was gathered, as one document: the answer first, then every section that has something to show."""

from collections.abc import Sequence
from pathlib import Path

from freeat.reports.html.blocks import Document, Section
from freeat.reports.html.gather import Gathered
from freeat.reports.html.sections.answer import answer_tables, answers, remarks
from freeat.reports.html.sections.checks import checks_section
from freeat.reports.html.sections.curves import curves_section
from freeat.reports.html.sections.examples import examples_section
from freeat.reports.html.sections.explorer import explorer_section
from freeat.reports.html.sections.gradients import gradients_section
from freeat.reports.html.sections.paper_figures import figures_section
from freeat.reports.html.sections.provenance import provenance_section
from freeat.reports.html.sections.reproduction import claims_section, published_section
from freeat.reports.html.sections.robustness import (
    attacked,
    judged_again,
    robustness_section,
    transfer_section,
)
from freeat.reports.html.sections.sizes import sizes_section
from freeat.reports.html.sections.stability import stability_section
from freeat.reports.html.tasks import Task, tasks_of


def make_document(found: Gathered, folders: Sequence[Path], title: str | None = None) -> Document:
    """The report of all that was found."""
    order = [row["algorithm"] for _, comparison in found.comparisons for row in comparison["algorithms"]]
    tasks = tasks_of(found.runs, order)
    sections, left_out = _sections(found, tasks)
    return Document(
        title=title or ", ".join(folder.resolve().name for folder in folders),
        setting=_setting(found, tasks),
        answers=answers(tasks, found),
        tables=answer_tables(tasks, found),
        remarks=remarks(tasks, found),
        sections=sections,
        left_out=[*found.left_out, *left_out],
    )


def _sections(found: Gathered, tasks: Sequence[Task]) -> tuple[list[Section], list[str]]:
    cells = attacked(found)
    examples, left_out = examples_section(found.examples)
    sections = [
        claims_section(found.reproductions),
        published_section(found.reproductions),
        figures_section(found.reproductions),
        curves_section(tasks),
        robustness_section(cells),
        transfer_section(cells),
        judged_again(found.runs),
        examples,
        checks_section(tasks, cells, found.probes),
        sizes_section(tasks, found.studies),
        stability_section(found.studies),
        gradients_section(tasks, found.studies),
        explorer_section(found.studies),
        provenance_section(found),
    ]
    return [section for section in sections if section is not None], left_out


def _setting(found: Gathered, tasks: Sequence[Task]) -> str:
    """What the page is about, in a line."""
    counted = (
        (len(found.runs), "run", "runs"),
        (len(found.measurements), "attack measured", "attacks measured"),
        (len(found.studies), "stability study", "stability studies"),
        (len(found.reproductions), "reproduction", "reproductions"),
    )
    parts = [f"{number} {one if number == 1 else many}" for number, one, many in counted if number]
    return " · ".join([*(task.title for task in tasks[:3]), *parts])
