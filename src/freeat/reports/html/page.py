"""The page: a document put into the template, with everything it needs inside and nothing it could fetch."""

import base64
import hashlib
import json
import math
import re
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

import freeat
from freeat.errors import InputError
from freeat.reports.html.blocks import Density, Document, Explorer, Lines
from freeat.reports.plots import OKABE_ITO

LIMIT = 5_000_000
"""Bytes a page may have."""
SCRIPTS = ("vendor/echarts.min.js", "bounds.js", "looks.js", "charts.js", "explorer.js", "page.js")
SUBSCRIPT = re.compile(r"(?<!\w)([α-ω∇])_(\w+)")
ASSETS = resources.files("freeat.reports.html") / "assets"


def asset(name: str) -> str:
    """A file of the package, as text."""
    return ASSETS.joinpath(*name.split("/")).read_text(encoding="utf-8")


def render(document: Document) -> str:
    """The document as one HTML page; refused where it would be larger than ``LIMIT``."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"kept": kept_together, "subscripts": subscripts}
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
    if (size := len(page.encode())) > LIMIT:
        raise InputError(
            f"the page would have {size / 1e6:.1f} MB, more than {LIMIT / 1e6:g}: report fewer folders at once"
        )
    return page


def kept_together(text: str) -> str:
    """Numbers on one line with their unit, and both sides of an equation on one."""
    return text.replace(" %", "\u00a0%").replace(" = ", "\u00a0=\u00a0")


def subscripts(text: str) -> Markup:
    """The paper's α_δ and ε_train with their subscripts set low; everything else escaped."""
    return Markup(SUBSCRIPT.sub(r"\1<sub>\2</sub>", str(escape(text))))


def policy(scripts: list[str]) -> str:
    """A content security policy under which only our own scripts run, and nothing is fetched."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def charts(document: Document) -> dict[str, Any]:
    """What the scripts draw, by the id of its place on the page."""
    return {
        f"{section.key}-{place}": {"kind": block.kind, **_without_numbers(block)}
        for section in document.sections
        for place, block in enumerate(section.blocks)
        if isinstance(block, Lines | Density | Explorer)
    }


def _without_numbers(block: Lines | Density | Explorer) -> dict[str, Any]:
    """A block as plain values; its table is on the page already."""
    return {name: value for name, value in asdict(block).items() if name != "numbers"}


def _finite(data: Any) -> Any:
    """The same with None for numbers that JSON does not know."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def embedded(data: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end that element."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
