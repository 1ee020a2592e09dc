"""Plots: a style for every series; learning curves with the right numbers in the right panels."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from freeat.experiments.curves import comparable
from freeat.reports.charts import ChartAxis, ChartPanel, ChartSeries, Curve, LineChart
from freeat.reports.plots import LINES, OKABE_ITO, draw_line_chart, series_style
from freeat.reports.tables import ReportTable
from freeat.reports.training import AXES, draw_curves, errors
from freeat.training.records import Record
from made_records import make_record, make_summary


def test_every_series_has_its_own_style() -> None:
    styles = [tuple(series_style(index).values()) for index in range(len(OKABE_ITO) * len(LINES))]
    assert len(set(styles)) == len(styles)


def history(shift: float, points: int = 4, sizes: tuple[int, ...] = (200,) * 4) -> list[Record]:
    return [
        make_record(
            make_summary(0.5 + 0.1 * k + shift, n=sizes[k - 1]),
            make_summary(0.4 + 0.05 * k + shift, n=sizes[k - 1]),
            update=10 * k,
            equivalent_epoch=float(k),
            gradient_evaluations=100 * k,
            seconds=k + shift,
        )
        for k in range(1, points + 1)
    ]


def test_seeds_are_averaged_over_the_records_all_have() -> None:
    x, (train, test, gap) = errors([history(0.0), history(0.01, points=3)], "update")
    assert x.tolist() == [10, 20, 30]
    assert train.shape == (2, 3)
    np.testing.assert_allclose(train[0], [40, 30, 20])
    np.testing.assert_allclose(test[1], [54, 49, 44])
    np.testing.assert_allclose(gap, test - train)
    seconds, _ = errors([history(0.0), history(0.02)], "seconds")
    np.testing.assert_allclose(seconds, [1.01, 2.01, 3.01, 4.01])


def test_last_record_on_more_images_is_left_out_of_the_curve() -> None:
    records = history(0.0, sizes=(200, 200, 200, 600))
    assert comparable(records) == records[:3]
    assert comparable(records[3:]) == records[3:]


@pytest.mark.parametrize("axis", AXES)
def test_drawing_writes_one_file_and_restores_matplotlib_settings(tmp_path: Path, axis: str) -> None:
    before = dict(mpl.rcParams)
    path = tmp_path / "figures" / "curves.png"
    series = [("free-4", [history(0.0), history(0.01)]), ("fast", [history(-0.1, points=1)])]
    draw_curves(path, series, axis=axis, title="digits")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert min(image.size) > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 20
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("more", [True, False])
def test_legend_explains_hollow_marks_where_there_are_any(
    tmp_path: Path, drawn: list[Figure], more: bool
) -> None:
    records = history(0.0, sizes=(200, 200, 200, 600 if more else 200))
    draw_curves(tmp_path / "curves.png", [("fast", [records])], title="digits")
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert labels == ["fast", *(["hollow: the last evaluation, on more images"] if more else [])]


def test_file_ending_decides_the_format(tmp_path: Path) -> None:
    draw_curves(tmp_path / "curves.pdf", [("fast", [history(0.0)])], title="digits")
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_a_logarithmic_panel_without_a_positive_value_is_drawn_empty(tmp_path: Path) -> None:
    axis = ChartAxis(key="n", label="n", log=True)
    series = [ChartSeries(name="free-4", curves=[Curve(panel=0, x={"n": [20, 30]}, y=[None, None])])]
    chart = LineChart(
        title="exponents",
        description="",
        axes=[axis],
        panels=[ChartPanel(title="risk gap", log=True)],
        series=series,
        numbers=ReportTable(caption="", columns=("n",), rows=[]),
    )
    assert draw_line_chart(tmp_path / "chart.png", chart).is_file()
