"""Add a built site to a folder of all versions: ``python docs/publish.py docs/_build site v0.1.0``.

Each version is a folder. ``versions.json`` lists them for the sidebar, releases first and the newest at the top;
the front page leads to the newest release, or to ``main`` before there is one.
"""

import json
import re
import shutil
import sys
from pathlib import Path

RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def publish(build: Path, site: Path, version: str) -> list[str]:
    """Copy the build to its version's folder and list all versions; returns them in the order of the list."""
    if version != "main" and not RELEASE.fullmatch(version):
        raise SystemExit(f"version {version!r} must be main or a tag such as v0.1.0")
    if not (build / "index.html").is_file():
        raise SystemExit(f"{build} holds no site: run `make docs` first")
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(build, site / version, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo*"))
    (site / ".nojekyll").touch()  # GitHub Pages would leave out folders that begin with an underscore
    releases = [
        (tuple(map(int, m.groups())), p.name) for p in site.iterdir() if (m := RELEASE.fullmatch(p.name))
    ]
    versions = [name for _, name in sorted(releases, reverse=True)]
    versions += ["main"] if (site / "main").is_dir() else []
    (site / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>freeat</title>'
        f'<meta http-equiv="refresh" content="0; url={versions[0]}/"><a href="{versions[0]}/">freeat</a>\n',
        encoding="utf-8",
    )
    return versions


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
