"""Robust accuracy against the radius, adversarial examples, and the table of a sweep."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from freeat.errors import InputError
from freeat.evaluation.evaluate import Gap, Queries
from freeat.evaluation.sanity import SanityCheck
from freeat.experiments.evaluations import ModelGap, SweepReport
from freeat.experiments.examples import AdversarialExamples
from freeat.reports.robustness import attack_text, draw_examples, draw_radii, robustness_lines, views
from stored_results import stored_evaluation


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_radius_chart_is_written_in_every_format(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"radii.{ending}"
    cells = [
        stored_evaluation(model, k / 255, split=split)
        for model in "ab"
        for k in (1, 5, 9)
        for split in ("train", "test")
    ]
    draw_radii(path, cells, title="both")
    assert path.stat().st_size > 3000
    if ending == "png":
        with Image.open(path) as image:
            assert image.width > image.height
    with pytest.raises(InputError, match="no results"):
        draw_radii(path, [])


def test_legend_with_long_names_fits_into_the_figure(tmp_path: Path, drawn: list[Figure]) -> None:
    pairs = [
        (m, f"pgd-10 from {s}")
        for m in ("free-4-linf-digits", "erm-linf")
        for s in ("vanilla-10-digits", "erm")
    ]
    draw_radii(
        tmp_path / "r.png", [stored_evaluation(m, k / 255, attack=a) for m, a in pairs for k in (1, 2)]
    )
    (figure,) = drawn
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert len(figure.legends[0].get_texts()) == 4


@pytest.mark.parametrize(
    ("radii", "unit", "last"), [((0.0, 4 / 255, 8 / 255), " in 255ths", 8.0), ((0.1, 0.2), "", 0.2)]
)
def test_radius_axis_uses_255ths_where_all_radii_are_255ths(
    tmp_path: Path, drawn: list[Figure], radii: tuple[float, ...], unit: str, last: float
) -> None:
    draw_radii(tmp_path / "r.png", [stored_evaluation("net", eps) for eps in radii])
    (axis,) = drawn[0].axes
    assert axis.get_xlabel() == f"radius ε{unit}"
    assert axis.get_title() == "test images, L∞ (robust accuracy, %)"
    assert axis.lines[0].get_xdata()[-1] == pytest.approx(last)


def test_panels_name_their_images_in_words(tmp_path: Path, drawn: list[Figure]) -> None:
    splits = ("test", "train_augmented")
    draw_radii(tmp_path / "r.png", [stored_evaluation("net", 0.1, split=split) for split in splits])
    titles = [axis.get_title().replace("\n", " ") for axis in drawn[0].axes]
    assert [title.split(" images")[0] for title in titles] == ["test", "augmented train"]


def test_image_misclassified_without_attack_is_marked() -> None:
    examples = AdversarialExamples(
        x=np.zeros((2, 1, 2, 2)),
        delta=np.zeros((2, 1, 2, 2)),
        y=np.array([0, 1]),
        predicted=np.array([1, 0]),
        clean_correct=np.array([True, False]),
        index=np.arange(2),
        classes=np.array(["cat", "dog"]),
    )
    assert [views(examples, i)[0][1] for i in (0, 1)] == ["true: cat", "true: dog\n(wrong when clean)"]


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_examples_are_drawn_for_any_number_of_channels(channels: int, tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    n = 5
    examples = AdversarialExamples(
        x=g.random((n, channels, 8, 8), np.float32),
        delta=np.zeros((n, channels, 8, 8), np.float32),
        y=np.arange(n) % 3,
        predicted=np.zeros(n, np.int64),
        clean_correct=np.ones(n, bool),
        index=np.arange(n),
        classes=np.array(["cat", "dog", "frog"]),
    )
    draw_examples(tmp_path / "e.png", examples, rows=3, title="pgd-10")
    with Image.open(tmp_path / "e.png") as image:
        assert image.height > image.width
    empty = AdversarialExamples(**{name: value[:0] for name, value in vars(examples).items()})
    with pytest.raises(InputError, match="no images"):
        draw_examples(tmp_path / "none.png", empty)


def test_sweep_report_lists_results_gaps_notes_checks_and_files_once() -> None:
    note = "DLR is undefined with 3 classes"
    queries = Queries(total=1234, mean=123.4, median=100.0, most=200, per_image=())
    gap = Gap(value=0.05, low=-0.01, high=0.1)
    report = SweepReport(
        results=(
            stored_evaluation("net", 8 / 255, notes=(note,), wrong_when_clean=10, turned_wrong=3),
            stored_evaluation("net", 8 / 255, attack="square", notes=(note,), queries=queries),
        ),
        gaps=(ModelGap(**vars(gap), model="net", attack="pgd-10", norm="linf", eps=8 / 255, clean=gap),),
        checks=(
            SanityCheck(name="a", passed=True, sentence="All is well."),
            SanityCheck(name="b", passed=False, sentence="gradients may be masked."),
        ),
        stored=("runs/net/results",),
    )
    text = "\n".join(robustness_lines(report, plot=Path("r.png"), examples=[("e.npz", "e.png")]))
    assert text.endswith("stored in: runs/net/results\nplot: r.png\nexamples: e.npz, drawn in e.png")
    assert "nothing was stored" in robustness_lines(replace(report, stored=()))[-1]
    assert "8/255" in text
    assert "3 of 90" in text
    assert "86.9" in text
    assert "[76.9, 96.9]" in text
    assert "123" in text
    assert "gap of net (pgd-10, linf 8/255): 5.0 points [-1.0, 10.0]" in text
    assert text.count("note: DLR") == 1
    assert "ok: All is well." in text
    assert "WARNING: gradients may be masked." in text
    assert "1 sanity check failed" in text


def test_attack_name_includes_settings_other_than_the_usual() -> None:
    usual = {"alpha": None, "start": "uniform", "precision": "fp32"}
    for settings, iterate, said in (
        (usual, "worst", "pgd-10"),
        (usual | {"alpha": 2 / 255, "precision": "bf16"}, "last", "pgd-10 (last, bf16, α = 2/255)"),
        (usual | {"start": "zero"}, "worst", "pgd-10 (zero start)"),
    ):
        assert attack_text("pgd-10", iterate, settings) == said
    assert attack_text("square", "worst", {}) == "square"
    assert attack_text("fgsm", "worst", usual | {"start": "zero"}) == "fgsm"
