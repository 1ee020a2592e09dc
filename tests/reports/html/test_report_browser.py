"""The page in a real browser: it opens from disk, its controls work, its bounds are Python's, and all can use it."""

import itertools
import math
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from freeat.reports.html.gather import Findings
from freeat.reports.html.page import make_document, render, write_report
from freeat.reports.html.stability import RANGES
from freeat.theory import Bound, bound_by_name
from freeat.theory.problem import USED
from report_store import HOSTILE
from stored_results import stored_evaluation

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "support" / "assets" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str | None:
    return os.environ.get("FREEAT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright (pip)")
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on the PATH: `apt-get install chromium`, or name one in $FREEAT_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    write_report(path, [store], title="Tiny")
    return path.as_uri()


@contextmanager
def opened(browser: "Browser", address: str, **settings: Any) -> "Iterator[Page]":
    """The page; when it is closed it must have said nothing on the console and asked nothing of any network."""
    context = browser.new_context(reduced_motion="reduce", **settings)
    context.set_default_timeout(120_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    context.close()
    assert complaints == []
    assert [url for url in asked if url != address and not url.startswith("data:")] == []


@pytest.fixture(scope="module")
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    """One page for all tests that leave it as they found it, with every chart drawn."""
    with opened(browser, address, color_scheme="light") as page:
        page.evaluate("freeat.charts.drawAll()")
        yield page


def series(page: "Page", chart: str, panel: int = 0) -> list[dict[str, Any]]:
    """What a chart draws in one of its panels: names and points."""
    found: list[dict[str, Any]] = page.evaluate(
        """([id, panel]) => {
            const plot = document.querySelectorAll(`[data-chart="${id}"] .plot`)[panel];
            const option = echarts.getInstanceByDom(plot).getOption();
            return option.series.map(({ name, type, data }) => ({ name, type, data }));
        }""",
        [chart, panel],
    )
    return found


def test_page_opens_and_draws_every_chart(page: "Page") -> None:
    assert page.title() == "Tiny · freeat report"
    plots = page.locator(".plot")
    assert plots.count() > 10
    for k in range(plots.count()):
        assert plots.nth(k).locator("svg, canvas").count() == 1
        box = plots.nth(k).bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) > 100


def test_series_are_switched_off_and_on(page: "Page") -> None:
    shown = {one["name"] for one in series(page, "curves-0")}
    button = page.locator('[data-chart="curves-0"] .legend button').first
    name = button.inner_text()
    assert name in shown
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    for panel in range(3):
        assert name not in {one["name"] for one in series(page, "curves-0", panel)}
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "true"
    assert {one["name"] for one in series(page, "curves-0")} == shown


@contextmanager
def axis(page: "Page", key: str) -> "Iterator[None]":
    """The curves over another x-axis, and then over the one they had."""
    choices = page.locator('[data-chart="curves-0"] input[type=radio]')
    before = choices.evaluate_all("(inputs) => inputs.find((one) => one.checked).value")
    choices.locator(f"xpath=self::*[@value='{key}']").check(force=True)
    yield
    choices.locator(f"xpath=self::*[@value='{before}']").check(force=True)


def test_x_axis_is_switched(page: "Page") -> None:
    def last() -> float:
        drawn = [one for one in series(page, "curves-0") if one["type"] == "line" and one["data"]]
        return float(drawn[0]["data"][-1][0])

    places = {}
    for key in ("epochs", "updates", "gradients", "seconds"):
        with axis(page, key):
            places[key] = last()
    assert places["updates"] > places["epochs"] > 0
    assert places["gradients"] > places["updates"]
    assert len(set(places.values())) == 4


def parameters(seed: int) -> dict[str, float]:
    """Parameters anywhere on the sliders, and beyond them."""
    rng = random.Random(seed)
    drawn = {}
    for name, (_, low, high) in RANGES.items():
        low, high = (low, high) if seed % 2 else (max(low / 100, 1) if low >= 1 else low / 100, 100 * high)
        value = low * (high / low) ** rng.random()
        drawn[name] = round(value) if name in ("m", "b", "n", "T") else value
    drawn["b"] = min(drawn["b"], drawn["n"])
    return drawn


def exists(algorithm: str, values: dict[str, float]) -> bool:
    if algorithm == "convex":
        return values["step"] * (values["beta"] + values["decay"]) <= 1
    return algorithm != "proximal" or values["beta"] < values["rho"]


def logs(algorithm: str, values: dict[str, float], *, average: bool = False) -> tuple[float, ...]:
    found = bound_by_name(algorithm, values, average=average)
    return (found.log_bound, *((found.log_lam, found.log_t0) if isinstance(found, Bound) else ()))


def test_bounds_in_javascript_equal_those_in_python(page: "Page") -> None:
    cases = [parameters(seed) for seed in range(400)]
    cases += [case | {"eps": 0.0, "alpha": 0.0, "decay": 0.0} for case in cases[:20]]
    for algorithm, average in itertools.product(USED, (False, True)):
        found = page.evaluate(
            """([algorithm, average, cases]) => cases.map((p) => {
                const { logBound, logLambda, logT0 } = freeat.bounds.bound(algorithm, p, average);
                return [logBound, logLambda, logT0, freeat.bounds.missing(algorithm, p)];
            })""",
            [algorithm, average, cases],
        )
        there = [exists(algorithm, case) for case in cases]
        assert sum(there) > 50
        for case, (*values, missing), exists_here in zip(cases, found, there, strict=True):
            assert (missing == "") == exists_here
            expected = logs(algorithm, case, average=average) if exists_here else ()
            for mine, theirs in zip(values, expected, strict=False):
                assert math.isclose(mine, theirs, rel_tol=1e-12, abs_tol=1e-9), (algorithm, average, case)


def explorer_state(page: "Page") -> tuple[dict[str, float], dict[str, float]]:
    """The numbers beside the sliders, and the logarithms of the bounds shown."""
    values = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".slider")].map(
            (one) => [one.dataset.name, Number(one.querySelector("[type=number]").value)]))"""
    )
    shown = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("[data-algorithm]")].map(
            (row) => [row.dataset.algorithm, Number(row.querySelector(".bound").dataset.log)]))"""
    )
    return values, shown


def check_explorer(page: "Page", *, average: bool = False) -> dict[str, float]:
    values, shown = explorer_state(page)
    assert list(shown) == list(USED)
    for algorithm, log_bound in shown.items():
        if exists(algorithm, values):
            expected = logs(algorithm, values, average=average)[0]
            assert math.isclose(log_bound, expected, rel_tol=1e-12, abs_tol=1e-9)
        else:
            assert math.isnan(log_bound)
    return values


def test_every_slider_moves_the_bounds_and_their_curves(page: "Page") -> None:
    for name in RANGES:
        along = "n" if name == "T" else "T"
        page.locator(".along select").select_option(along)
        before, first = series(page, "explorer-0"), check_explorer(page)
        page.locator(f'.slider[data-name="{name}"] [type=range]').focus()
        page.keyboard.press("PageDown" if name == "b" else "PageUp")
        values = check_explorer(page)
        assert values[name] != first[name]
        after = series(page, "explorer-0")
        assert after != before
        for algorithm in ("vanilla", "fast", "free"):
            (curve,) = (one["data"] for one in after if one["name"] == algorithm)
            assert len(curve) > 50
            for x, y in curve[::20]:
                expected = logs(algorithm, values | {along: x})[0] / math.log(10)
                assert math.isclose(y, expected, rel_tol=1e-9, abs_tol=1e-9)


def test_explorer_averages_and_says_what_a_bound_needs(page: "Page") -> None:
    box = page.locator(".average input")
    box.check()
    check_explorer(page, average=True)
    box.uncheck()
    check_explorer(page)
    number = page.locator('.slider[data-name="rho"] [type=number]')
    before = number.input_value()
    number.fill("0.001")
    assert not exists("proximal", check_explorer(page))
    assert "needs ρ > β" in page.locator("[data-algorithm=proximal]").inner_text()
    number.fill(before)
    assert check_explorer(page)["rho"] == float(before)


def test_typed_numbers_are_used_and_invalid_ones_reported(page: "Page") -> None:
    box = page.locator('.slider[data-name="n"] [type=number]')
    box.fill("123456")
    assert check_explorer(page)["n"] == 123456
    box.fill("3")
    assert "exceeds n = 3" in page.locator(".problem").inner_text()
    box.fill("1000")
    assert page.locator(".problem").inner_text() == ""


def test_preset_sets_the_sliders(page: "Page") -> None:
    page.locator(".preset select").select_option("0")
    values = check_explorer(page)
    assert values["n"] == 20
    assert values["T"] == 8


def hover_until(page: "Page", chart: str, *texts: str) -> None:
    """Move the pointer over the middle of a chart's first panel until its tooltip says all the texts."""
    plot = page.locator(f'[data-chart="{chart}"] .plot').first
    plot.evaluate("(element) => element.scrollIntoView({ block: 'center', behavior: 'instant' })")
    for step in range(100):
        box = plot.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2 + step % 9, box["y"] + box["height"] / 2)
        page.wait_for_timeout(100)
        if all(plot.get_by_text(text).first.is_visible() for text in texts):
            return
    pytest.fail(f"no tooltip says {texts!r}")


@pytest.mark.parametrize("key", ["epochs", "updates", "gradients", "seconds"])
def test_tooltip_shows_every_series_on_every_axis(page: "Page", key: str) -> None:
    """Also where no two algorithms have a point at the same place, as in seconds."""
    names = {one["name"] for one in series(page, "curves-0") if one.get("name")}
    assert len(names) > 1
    with axis(page, key):
        hover_until(page, "curves-0", *names)


def test_hostile_names_execute_nothing(browser: "Browser", hostile: Path, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", [hostile], title=HOSTILE)
    with opened(browser, (tmp_path / "report.html").as_uri()) as page:
        page.evaluate("freeat.charts.drawAll()")
        assert page.locator("h1").inner_text() == HOSTILE
        hover_until(page, "robustness-0", "onerror")
        assert page.evaluate("window.hurt") is None


def serious_faults(page: "Page") -> list[tuple[str, str, str]]:
    report = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        (fault["id"], fault["nodes"][0]["html"], fault["nodes"][0]["failureSummary"])
        for fault in report["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


def test_axe_finds_no_serious_fault(browser: "Browser", address: str) -> None:
    """On a wide screen in light and in dark, and on a phone; with everything that folds unfolded."""
    with opened(browser, address, color_scheme="light") as page:
        page.evaluate("() => document.querySelectorAll('details').forEach((one) => (one.open = true))")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        assert serious_faults(page) == []
        page.emulate_media(color_scheme="dark")
        assert serious_faults(page) == []
        page.set_viewport_size({"width": 390, "height": 800})
        assert serious_faults(page) == []


def test_theme_is_switched(page: "Page") -> None:
    def background() -> str:
        return str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))

    light = background()
    button = page.locator("#theme")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert background() != light
    button.click()
    assert background() == light


def test_narrow_page_does_not_scroll_sideways(browser: "Browser", address: str) -> None:
    with opened(browser, address, viewport={"width": 360, "height": 740}) as page:
        widths = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1]
        boxes = [plot.bounding_box() for plot in page.locator('[data-chart="curves-0"] .plot').all()]
        assert len(boxes) == 3
        assert all(box is not None and box["width"] > 250 for box in boxes)


def test_names_are_not_broken_inside_a_word_on_a_phone(browser: "Browser", address: str) -> None:
    """In every table whose rows have names; a long path may break after its slashes."""
    with opened(browser, address, viewport={"width": 390, "height": 844}) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        broken = page.evaluate(
            r"""() => [...document.querySelectorAll('.explorer tbody th, .scroll tbody th.text')].flatMap((name) => {
                const text = name.firstChild, range = document.createRange();
                if (text?.nodeType !== Node.TEXT_NODE) return [];
                return [...text.data.matchAll(/[a-z]{2,14}/g)].filter((word) => {
                    range.setStart(text, word.index);
                    range.setEnd(text, word.index + word[0].length);
                    return range.getClientRects().length > 1;
                }).map((word) => word[0]);
            })"""
        )
        assert broken == []


def test_nothing_is_cut_off_on_a_laptop(browser: "Browser", address: str) -> None:
    """Neither the list of sections nor a table, with all numbers unfolded."""
    with opened(browser, address, viewport={"width": 1300, "height": 900}) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        cut = page.evaluate(
            """() => [...document.querySelectorAll('.top nav, .scroll')]
                .filter((one) => one.scrollWidth > one.clientWidth + 1)
                .map((one) => one.innerText.slice(0, 60))"""
        )
        assert cut == []


def test_a_series_of_one_radius_is_visible_with_its_interval(browser: "Browser", tmp_path: Path) -> None:
    names = ("weights", "architecture", "images", "index", "seed")
    results = [
        stored_evaluation(model=model, eps=eps, identity=dict.fromkeys(names, model))
        for model, eps in (("a", 0.2), ("a", 0.4), ("a", 0.6), ("b", 0.6))
    ]
    path = tmp_path / "report.html"
    found = Findings(evaluations=results)
    path.write_text(render(make_document(found, [tmp_path])), encoding="utf-8")
    with opened(browser, path.as_uri()) as page:
        page.evaluate("freeat.charts.drawAll()")
        marks = page.evaluate(
            """() => {
                const chart = echarts.getInstanceByDom(document.querySelector('[data-chart="robustness-0"] .plot'));
                const option = chart.getOption();
                const one = option.series.find(({ name, data }) => name && data.length === 1);
                const [x] = chart.convertToPixel({ seriesIndex: option.series.indexOf(one) }, one.data[0]);
                return [one.symbolSize(one.data[0], { dataIndex: 0 }), chart.getWidth() - x];
            }"""
        )
        size, room = marks
        assert size >= 10
        assert room > size  # the last mark lies inside the drawing
        bars = page.locator('[data-chart="robustness-0"] .plot path[stroke-width="2"]').count()
        assert bars >= 3  # the interval with both its ends


def test_printed_page_is_white_and_without_controls(browser: "Browser", address: str, tmp_path: Path) -> None:
    with opened(browser, address, color_scheme="dark") as page:
        page.pdf(path=tmp_path / "report.pdf", format="A4")
        page.emulate_media(media="print")
        assert not page.locator("#theme").is_visible()
        assert not page.locator(".switch").first.is_visible()
        assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("h1").is_visible()
    assert (tmp_path / "report.pdf").stat().st_size > 30_000


OVERFLOWING = """() => [...document.querySelectorAll(".plot svg, .plot canvas, table")].filter((one) => {
    const [inner, outer] = [one, one.closest(".plot, .scroll, .explorer")].map((e) => e.getBoundingClientRect());
    return inner.width > 0 && (inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1);
}).map((one) => one.closest("section").id)"""


def test_charts_and_tables_keep_within_a_printed_page(browser: "Browser", address: str) -> None:
    """Drawn on a screen of any width, laid out as wide as A4 is between its margins."""
    for width in (390, 1200):
        with opened(browser, address, viewport={"width": width, "height": 900}) as page:
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            page.emulate_media(media="print")
            page.set_viewport_size({"width": 688, "height": 900})
            assert page.evaluate(OVERFLOWING) == []
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            page.emulate_media(media="screen")
            page.evaluate("dispatchEvent(new Event('afterprint'))")
            assert page.locator("svg[viewBox]:not([aria-hidden])").count() == 0


def test_explorer_plot_stays_visible_at_the_last_slider_on_a_phone(browser: "Browser", address: str) -> None:
    with opened(browser, address, viewport={"width": 390, "height": 800}) as page:
        last = page.locator(".slider").last
        last.evaluate("(element) => element.scrollIntoView({ block: 'end', behavior: 'instant' })")
        box = page.locator(".explorer .plot").bounding_box()
        assert box is not None
        assert 0 < box["y"] < box["y"] + box["height"] < 800


def test_explorer_shows_the_names_of_bounds_whole(browser: "Browser", address: str) -> None:
    with opened(browser, address, viewport={"width": 1100, "height": 800}) as page:
        page.evaluate("freeat.charts.drawAll()")
        room, needed = page.evaluate(
            """() => {
                const chart = echarts.getInstanceByDom(document.querySelector('.explorer .plot'));
                const { grid, series } = chart.getOption();
                const pen = document.createElement('canvas').getContext('2d');
                pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
                return [grid[0].right, 6 + Math.max(...series.map(({ name }) => pen.measureText(name || '').width))];
            }"""
        )
        assert room >= needed


def test_examples_stay_in_line_beside_a_long_class_name(browser: "Browser", address: str) -> None:
    with opened(browser, address, viewport={"width": 1100, "height": 800}) as page:
        tops = page.evaluate(
            """() => {
                const [first, second] = document.querySelectorAll('.examples ul:has(li + li) li');
                const names = second.querySelectorAll('small');
                names[names.length - 1].textContent = 'a class whose name takes several lines '.repeat(3);
                const top = (example) => example.querySelector('img').getBoundingClientRect().top;
                return [top(first), top(second)];
            }"""
        )
        assert tops[0] == tops[1]


def test_every_series_has_its_own_style_in_the_page(page: "Page") -> None:
    seen = page.evaluate(
        """() => [...Array(32).keys()].map((k) =>
            JSON.stringify([freeat.style.colour(k), freeat.style.dash(k), freeat.style.mark(k)]))"""
    )
    assert len(set(seen)) == 32


def test_page_without_javascript_shows_the_numbers(browser: "Browser", address: str) -> None:
    with opened(browser, address, java_script_enabled=False) as page:
        assert page.locator("#answer-0 tbody tr").count() == 4
        assert page.locator("#curves-0-numbers tbody tr").count() > 4
        assert not page.locator("#theme").is_visible()
        assert page.get_by_text("Charts need JavaScript").is_visible()
