"""The files of a reproduction: figures that open, claims that read, one JSON of everything."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from freeat.experiments.paper.claims import CLAIMS
from freeat.experiments.paper.documents import (
    AtChance,
    ClaimReport,
    Decision,
    Fit,
    LeftOut,
    Sufficiency,
    TaskFailure,
    read_reproduction,
)
from freeat.reports.paper_figures import draw_figure
from freeat.reports.reproduction import claims_markdown, write_outputs
from invented_reproduction import document, figures

FIGURES = {figure.name: figure for figure in figures()}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_as_png_and_pdf(name: str, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    paths = draw_figure(FIGURES[name], tmp_path)
    if not FIGURES[name].panels:
        assert paths == []
        return
    assert [path.name for path in paths] == [f"{name}.png", f"{name}.pdf"]
    with Image.open(paths[0]) as image:
        assert min(image.size) > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 20
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []


def test_figure_files_are_deterministic(tmp_path: Path) -> None:
    first, second = (draw_figure(FIGURES["figure-2"], tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_all_files_of_a_reproduction_are_written_and_read_back(tmp_path: Path) -> None:
    made = document()
    paths = write_outputs(made, tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in paths}
    assert {
        "reproduction.json",
        "claims.md",
        "tables/table-3.tex",
        "tables/table-1.csv",
        "figures/figure-1.pdf",
    } <= names
    assert "figures/figure-9.png" not in names, "nothing of it was measured"
    assert all(path.is_file() for path in paths)
    assert read_reproduction(tmp_path) == made


def claim(**more: Any) -> ClaimReport:
    found: dict[str, Any] = {"panel": "cifar10 l2", "detail": "gaps", "low": 0.1, "high": 0.15, "seeds": 3}
    facts: dict[str, Any] = {
        "id": "a-claim",
        "sentence": "It is so",
        "ours": False,
        "beside": "with moderate steps",
        "where": ("table-1",),
        "statistic": "a difference",
        "unit": "points",
        "published": (Decision(**found | {"panel": ""}, verdict="not published"),),
        "measured_primary": Decision(
            **found | {"panel": "mean over 2 panels"}, statistic=0.01, verdict="undecided"
        ),
        "measured": (
            Decision(**found, statistic=0.123, verdict="confirmed"),
            Decision(**found, statistic=-0.1, verdict="refuted"),
        ),
    }
    return ClaimReport(**facts | more)


def claims_text(**parts: Any) -> str:
    """The claims as Markdown, of a document with one claim and these parts."""
    whole: dict[str, Any] = {"claims": (claim(),), "sufficiency": ()}
    return claims_markdown(document(**whole | parts))


def test_claims_page_counts_verdicts_and_quotes_the_paper() -> None:
    text = claims_text(notes=("a substitute",))
    assert "at scale `hour`" in text
    assert "| [a-claim](#a-claim) | not published | **undecided**; panels: 1 confirmed, 1 refuted |" in text
    assert "| measured | mean over 2 panels | **undecided** | 1.0 [10.0, 15.0] | 3 | gaps |" in text
    assert "Beside it in the paper: “with moderate steps”." in text
    assert "\n- a substitute\n" in text
    assert "> “It is so”" in text
    assert "Shown in table-1." in text
    assert "| measured | cifar10 l2 | confirmed | 12.3 [10.0, 15.0] | 3 | gaps |" in text
    assert "| published | – | not published | – | 3 | gaps |" in text


def test_units_and_observations_that_the_paper_does_not_make() -> None:
    text = claims_text(
        claims=(claim(unit="decades", ours=True, beside="", measured_primary=None, measured=()),)
    )
    assert "Our observation, not the paper's; shown in table-1." in text
    assert "“" not in text
    assert "in decades" in text
    assert "| not measured |" in text


def test_claims_page_begins_with_the_data_sets_that_count() -> None:
    fits = (
        Fit(norm="l2", robust_train=0.948, least=0.8, fits=True),
        Fit(norm="linf", robust_train=None, least=0.5, fits=None),
    )
    guessing = (
        AtChance(norm="l2", label="free-8"),
        AtChance(norm="linf", label="free-4", constant=True),
    )
    some = (
        Sufficiency(data="svhn", counts=False, vanilla=fits, at_chance=guessing),
        Sufficiency(data="cifar10", counts=None, vanilla=fits, at_chance=()),
    )
    head = claims_text(sufficiency=some).split("Each claim")[0]
    fit_text = (
        "Robust training accuracy of Vanilla-10: 94.8 % in L2 (at least 80 % are required); "
        "not measured in Linf (at least 50 % are required); "
    )
    assert (
        f"- SVHN does not count. {fit_text}not above chance: L2 Free-8; Linf Free-4 (the same answer to every image)."
        in head
    )
    assert f"- CIFAR-10 cannot be decided yet. {fit_text}every measured algorithm is above chance." in head
    assert "counts only if" not in claims_text()


def test_what_is_missing_ends_the_claims_page() -> None:
    text = claims_text(
        left_out=(LeftOut(what="svhn", reason="is not here"),), failures=(TaskFailure(task="a", reason="b"),)
    )
    assert text.endswith("## What is missing\n\n- left out: svhn (is not here)\n- FAILED: a: b\n")
    assert "What is missing" not in claims_text()


def test_claims_page_lists_every_claim() -> None:
    text = claims_markdown(document())
    assert text.count("\n## ") == len(CLAIMS)
    assert "nan" not in text
    for line in text.splitlines():
        if line.startswith(("| measured", "| published")):
            assert line.count("|") == 7, line
