"""Make the figures of the gallery again: ``python docs/gallery.py`` runs the commands of ``docs/gallery.md``.

The page is the only list. Its shell blocks are run in their order in one folder (``runs/gallery``). A comment before
a figure names where it comes from: a file that a command wrote, or a page that it wrote and a section of it, which
Chromium then draws (``pip install playwright``)::

    <!-- from: digits/curves.png -->
    <!-- from: report.html#fairness height=900 -->
    <!-- from: report.html width=390 height=844 theme=dark -->

The figures go to ``docs/figures``, and where they were made to the last line of the page. A command that is done is
not run again, and one that was interrupted resumes.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from freeat.compute.machine import provenance

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.S | re.M)
FIGURE = re.compile(
    r"<!-- from: (?P<source>\S+)(?P<settings>(?: \w+=\w+)*) -->\n!\[[^\]]*\]\((?P<path>[^)]+)\)"
)
MADE = re.compile(r"(?<=<!-- made -->\n).*?(?=\n<!-- end of made -->)", re.S)
COMMIT = re.compile(r'"commit": *"([^"]+)"')
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
LARGEST = 200_000
"""Bytes that a figure may have."""
MARGIN = 24
"""Pixels around a section of a page."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the page: the file it lies in, and where it comes from."""

    path: Path
    source: str
    section: str
    settings: dict[str, str] = field(default_factory=dict)


def commands(page: str) -> list[list[str]]:
    """The command lines of freeat on the page, in their order."""
    lines = "\n".join(BLOCK.findall(page)).replace("\\\n", " ").splitlines()
    found = [parts for line in lines if (parts := shlex.split(line, comments=True))]
    return [parts for parts in found if parts[0] == "freeat"]


def figures(page: str, folder: Path) -> list[Figure]:
    """The figures of the page that is in ``folder``."""
    made = []
    for match in FIGURE.finditer(page):
        source, _, section = match["source"].partition("#")
        settings = dict(pair.split("=") for pair in match["settings"].split())
        made.append(Figure(path=folder / match["path"], source=source, section=section, settings=settings))
    return made


def run_commands(page: str, work: Path) -> dict[str, dict[str, Any]]:
    """Run what has not been run; returns where each command of the page ran."""
    work.mkdir(parents=True, exist_ok=True)
    record = work / "made.json"
    made: dict[str, dict[str, Any]] = (
        json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    )
    asked = [shlex.join(parts) for parts in commands(page)]
    for k, command in enumerate(asked):
        inputs = hashlib.sha256("\n".join(asked[: k + 1]).encode()).hexdigest()
        if made.get(command, {}).get("inputs") == inputs:
            continue
        print(f"$ {command}", flush=True)
        subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=work, check=True)
        origin = provenance(torch.device("cpu"))
        made[command] = {
            "inputs": inputs,
            "versions": f"Python {origin.versions['python']}, torch {origin.versions['torch']}",
            "machine": f"{origin.machine.cores} cores of an {origin.machine.processor}",
        }
        record.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return {command: made[command] for command in asked}


def commits(work: Path) -> str:
    """The commits that runs and results were made at: of an interrupted gallery, there may be several."""
    texts = (path.read_text(encoding="utf-8") for path in work.rglob("*.json"))
    return " and ".join(sorted({commit for text in texts for commit in COMMIT.findall(text)})) or "unknown"


def provenance_text(made: dict[str, dict[str, Any]], work: Path) -> str:
    """The lines of the page about commit, versions and machine."""

    def all_of(key: str) -> str:
        return " and ".join(dict.fromkeys(one[key] for one in made.values()))

    return (
        f"Made by `python docs/gallery.py`. Runs and results: commit {commits(work)}; {all_of('versions')};\n"
        f"{all_of('machine')}."
    )


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium; None, with the reason printed, where there is none."""
    path = os.environ.get("FREEAT_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        print("sections of pages are not drawn: that needs Chromium and `pip install playwright`")
        yield None
        return
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def draw_page(opened: Any, figure: Figure, work: Path) -> None:
    """A section of a page as the browser draws it, or the top of the page; ``height`` cuts either off."""
    height = int(figure.settings.get("height", 5000 if figure.section else 900))
    size = {"width": int(figure.settings.get("width", 1100)), "height": height}
    context = opened.new_context(
        viewport=size,
        color_scheme=figure.settings.get("theme", "light"),
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto((work / figure.source).resolve().as_uri())
    page.evaluate(
        "document.documentElement.style.setProperty('--shadow', 'none')"
    )  # soft edges are many bytes
    clip = None
    if figure.section:
        page.evaluate("document.querySelector('.top').style.display = 'none'")  # it would cover the section
    page.evaluate("freeat.charts.drawAll()")
    if figure.section:
        box = page.locator(f"#{figure.section}").bounding_box()
        top = page.locator(f"#{figure.section} h2").bounding_box()["y"] - MARGIN
        tall = min(box["y"] + box["height"] + MARGIN - top, height)
        clip = {"x": box["x"] - MARGIN, "y": top, "width": box["width"] + 2 * MARGIN, "height": tall}
    page.screenshot(path=figure.path, animations="disabled", clip=clip, full_page=clip is not None)
    context.close()


def copy_file(figure: Figure, work: Path) -> None:
    """The one file of that name; a name may have wildcards."""
    found = sorted(work.glob(figure.source))
    if len(found) != 1:
        raise SystemExit(f"{figure.source} should be one file in {work}: found {len(found)}")
    shutil.copyfile(found[0], figure.path)


def shrink(path: Path) -> None:
    """The same pixels in fewer bytes; fewer colours only if that is not enough, and refused if neither is."""
    with Image.open(path) as image:
        flat = image.convert("RGB")
    flat.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        flat.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    if (size := path.stat().st_size) > LARGEST:
        raise SystemExit(f"{path} has {size} bytes, more than {LARGEST}: draw less of it")


def make_gallery(page: Path, work: Path) -> list[Path]:
    """Run the commands of the page, draw its figures, write where they were made; returns the figures drawn."""
    text = page.read_text(encoding="utf-8")
    made = run_commands(text, work)
    drawn = []
    with browser() as opened:
        for figure in figures(text, page.parent):
            figure.path.parent.mkdir(exist_ok=True)
            if not figure.source.endswith(".html"):
                copy_file(figure, work)
            elif opened is not None:
                draw_page(opened, figure, work)
            else:
                continue
            shrink(figure.path)
            drawn.append(figure.path)
    page.write_text(MADE.sub(lambda _: provenance_text(made, work), text), encoding="utf-8")
    return drawn


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--page", type=Path, default=HERE / "gallery.md")
    parser.add_argument(
        "--work", type=Path, default=HERE.parent / "runs" / "gallery", help="folder of the runs"
    )
    given = parser.parse_args()
    for path in make_gallery(given.page, given.work):
        print(path)
