"""The page: self-contained, under a policy that lets only our scripts run, with every text escaped."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.cli.main import run as freeat
from freeat.errors import InputError
from freeat.reports.html import page as page_module
from freeat.reports.html.page import ASSETS, SCRIPTS, asset, embedded, write_report
from report_store import HOSTILE, HOSTILE_FILE


class Elements(HTMLParser):
    """The tags of a page with their attributes, its scripts and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "script" and (not self.scripts or self.scripts[-1][0] is not attributes):
            self.scripts.append((attributes, data))
        else:
            self.texts.append(data)


@pytest.fixture(scope="module")
def text(store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(path, [store])
    return path.read_text(encoding="utf-8")


def test_page_fetches_nothing(text: str) -> None:
    allowed = ("data:image/png;base64,", "#")
    for tag, attributes in Elements(text).tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(allowed), (tag, value)
    assert "@import" not in text
    assert "url(" not in asset("report.css")


def test_security_policy_allows_exactly_the_packaged_scripts(text: str) -> None:
    elements = Elements(text)
    (policy,) = [a["content"] for tag, a in elements.tags if tag == "meta" and a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    digests = set(re.findall(r"'sha256-([^']+)'", policy))
    run = [code for attributes, code in elements.scripts if attributes.get("type") != "application/json"]
    assert len(run) == len(SCRIPTS)
    assert {base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in run} == digests
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_hostile_names_stay_text(hostile: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", [hostile], title=HOSTILE)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    elements = Elements(text)
    assert len(elements.scripts) == len(SCRIPTS) + 1
    assert not [a for tag, a in elements.tags if tag == "img" and a.get("src") == "x"]
    assert not [a for _, a in elements.tags if any(name.startswith("on") for name in a)]
    for name in (HOSTILE, HOSTILE_FILE):
        assert name in "".join(elements.texts), "it is shown all the same"
        assert name not in text


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_embedded_json_round_trips_and_cannot_close_its_element(data: Any) -> None:
    text = embedded(data)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == data


def test_too_large_page_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    assert len(text.encode()) < page_module.LIMIT
    monkeypatch.setattr(page_module, "LIMIT", 1000)
    with pytest.raises(InputError, match="fewer folders"):
        write_report(tmp_path / "report.html", [store])
    assert list(tmp_path.iterdir()) == []


def test_chart_library_matches_its_published_digest() -> None:
    """Its name, version, licence and digest stand beside it."""
    origin = json.loads(asset("vendor/origin.json"))
    code = asset("vendor/echarts.min.js")
    assert hashlib.sha256(code.encode()).hexdigest() == origin["sha256"]
    assert f"{origin['package']}@{origin['version']}" == "echarts@6.1.0"
    assert "Apache License" in asset("vendor/LICENSE")
    assert "Apache ECharts" in asset("vendor/NOTICE")
    assert "</script" not in code.lower()


def test_every_asset_is_packaged() -> None:
    names = {path.name for path in ASSETS.iterdir()}
    assert names >= {
        "template.html",
        "macros.html",
        "report.css",
        "bounds.js",
        "charts.js",
        "page.js",
        "vendor",
    }
    assert all(asset(name) for name in SCRIPTS)


def test_report_command_writes_page_and_json(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "report.html"
    assert freeat(["report", str(store), "--out", str(out), "--title", "Tiny"]) == 0
    assert f"report: {out}" in capsys.readouterr().out
    assert "<title>Tiny · freeat report</title>" in out.read_text(encoding="utf-8")
    assert freeat(["report", str(store), "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bytes"] == out.stat().st_size
    assert "curves" in document["sections"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{store}", "--out", "report.pdf"], "ends in .html"),
        (["nowhere"], "does not exist"),
        (["."], "nothing to report"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_gives_one_message_and_writes_nothing(
    arguments: list[str],
    message: str,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert freeat(["report", *(argument.format(store=store) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
