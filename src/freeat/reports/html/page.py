"""The report as one HTML file: gather the folders, order what they hold into sections, render, write.

The page holds everything it needs and fetches nothing.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

import freeat
from freeat.errors import InputError
from freeat.files.documents import check_output, to_json, write_text
from freeat.reports.html.answer import answer_tables, answers, checks_section, remarks
from freeat.reports.html.blocks import Chart, ReportPage, Section
from freeat.reports.html.curves import curves_section, fairness_section, gradients_section, sizes_section
from freeat.reports.html.gather import Findings, gather
from freeat.reports.html.groups import Benchmark, benchmarks_of
from freeat.reports.html.provenance import provenance_section
from freeat.reports.html.reproduction import claims_section, figures_section, published_section
from freeat.reports.html.robustness import (
    examples_section,
    gaps_section,
    largest_samples,
    robustness_section,
    transfer_section,
)
from freeat.reports.html.stability import explorer_section, population_section, stability_section
from freeat.reports.plots import OKABE_ITO

LIMIT = 5_000_000
"""Bytes a page may have."""
SCRIPTS = ("vendor/echarts.min.js", "bounds.js", "style.js", "charts.js", "explorer.js", "page.js")
NUMBERED = re.compile(r"(?<=[a-zA-Z])-(?=\d)")
SUBSCRIPT = re.compile(r"(?<!\w)([α-ω∇])_(\w+)")
ASSETS = resources.files("freeat.reports.html") / "assets"


@dataclass(frozen=True, kw_only=True)
class WrittenReport:
    """The page that was written: its size in bytes, its sections, and what could not be shown."""

    size: int
    sections: list[str]
    left_out: Sequence[str]


def write_report(path: Path, folders: Sequence[Path], *, title: str | None = None) -> WrittenReport:
    """One self-contained HTML page of everything found in the folders."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {path}: the report is a page; give it a name that ends in .html")
    check_output(path)
    document = make_document(gather(folders), folders, title)
    page = render(document)
    write_text(path, page)
    return WrittenReport(
        size=len(page.encode()),
        sections=[section.key for section in document.sections],
        left_out=document.left_out,
    )


def make_document(found: Findings, folders: Sequence[Path], title: str | None = None) -> ReportPage:
    """The report as sections and blocks."""
    order = [row.algorithm for _, comparison in found.comparisons for row in comparison.algorithms]
    benchmarks = benchmarks_of(found.runs, order)
    sections, left_out = _sections(found, benchmarks)
    return ReportPage(
        title=title or ", ".join(folder.resolve().name for folder in folders),
        setting=_setting(found, benchmarks),
        answers=answers(benchmarks, found),
        tables=answer_tables(benchmarks, found),
        remarks=remarks(benchmarks, found),
        sections=sections,
        left_out=[*found.left_out, *left_out],
    )


def _sections(found: Findings, benchmarks: Sequence[Benchmark]) -> tuple[list[Section], list[str]]:
    evaluations = largest_samples(found.evaluations)
    examples, left_out = examples_section(found.examples)
    sections = [
        claims_section(found.reproductions),
        published_section(found.reproductions),
        figures_section(found.reproductions),
        curves_section(benchmarks),
        fairness_section(benchmarks),
        robustness_section(evaluations),
        transfer_section(evaluations),
        gaps_section(evaluations),
        examples,
        checks_section(benchmarks, evaluations, found.checks),
        sizes_section(benchmarks, found.studies),
        stability_section(found.studies),
        population_section(found.populations),
        gradients_section(benchmarks, found.studies),
        explorer_section(found.studies),
        provenance_section(found),
    ]
    return [section for section in sections if section.blocks], left_out


def _setting(found: Findings, benchmarks: Sequence[Benchmark]) -> str:
    """The subtitle: how many runs, comparisons and studies."""
    counted = (
        (len(found.runs), "run", "runs"),
        (len(found.evaluations), "evaluation under attack", "evaluations under attack"),
        (len(found.studies), "stability study", "stability studies"),
        (len(found.populations), "population study", "population studies"),
        (len(found.reproductions), "reproduction", "reproductions"),
    )
    parts = [f"{number} {one if number == 1 else many}" for number, one, many in counted if number]
    return " · ".join([*(benchmark.title for benchmark in benchmarks[:3]), *parts])


def asset(name: str) -> str:
    """A file of the package, as text."""
    return ASSETS.joinpath(*name.split("/")).read_text(encoding="utf-8")


def render(document: ReportPage) -> str:
    """The document as one HTML page; refused where it would be larger than ``LIMIT``."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"without_breaks": without_breaks, "subscripts": subscripts}
    scripts = [asset(name).strip() for name in SCRIPTS]
    page = environment.get_template("template.html").render(
        document=document,
        policy=policy(scripts),
        style=asset("report.css"),
        scripts=scripts,
        data=embedded({"charts": charts(document), "palette": OKABE_ITO}),
        version=freeat.__version__,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    page = page.encode(errors="replace").decode()  # folders whose names are no text
    if (size := len(page.encode())) > LIMIT:
        raise InputError(
            f"the page would have {size / 1e6:.1f} MB, more than {LIMIT / 1e6:g}: report fewer folders at once"
        )
    return page


def without_breaks(text: str) -> str:
    """No line break between a number and its unit, around an equals sign, or inside a name such as PGD-10."""
    return NUMBERED.sub("\u2011", text).replace(" %", "\u00a0%").replace(" = ", "\u00a0=\u00a0")


def subscripts(text: str) -> Markup:
    """The paper's α_δ and ε_train with their subscripts set low; everything else escaped."""
    return Markup(SUBSCRIPT.sub(r"\1<sub>\2</sub>", str(escape(text))))


def policy(scripts: list[str]) -> str:
    """A content security policy under which only the packaged scripts run, and nothing is fetched."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def charts(document: ReportPage) -> dict[str, Any]:
    """What the scripts draw, by the id of its element."""
    found = {}
    for section in document.sections:
        for k, block in enumerate(section.blocks):
            if isinstance(block, Chart):
                values = asdict(block)
                values.pop("numbers", None)  # its table is on the page already
                found[f"{section.key}-{k}"] = {"kind": block.kind, **values}
    return found


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end that element."""
    text = to_json(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
