"""The paper's tables as text: its layout, published beside measured, in four forms."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import pytest

from freeat.experiments.paper.documents import PaperTable
from freeat.experiments.paper.published import published_tables
from freeat.reports.paper_tables import comma_separated, latex, layouts, markdown, notes, print_tables
from invented_reproduction import document, table

TABLES = tuple(published_tables())


def lines_of(made: PaperTable, start: str) -> list[list[str]]:
    """The cells of the Markdown lines that begin with this word, and of the two below."""
    lines = [line.strip("| ").split(" | ") for line in markdown(made).splitlines() if line.startswith("|")]
    at = next(k for k, line in enumerate(lines) if line[0].strip() == start)
    return [[word.strip() for word in line] for line in lines[at : at + 3]]


def with_second_row(made: PaperTable, **changes: Any) -> PaperTable:
    first, second, *others = made.rows
    return replace(made, rows=(first, replace(second, **changes), *others))


@pytest.mark.parametrize("name", TABLES)
def test_every_published_number_is_printed(name: str) -> None:
    text = markdown(table(name))
    for row in published_tables()[name].rows:
        for cell in row.cells.values():
            assert f"{cell.value:.1f}" in text


def test_published_measured_and_plain_below_each_other() -> None:
    paper, ours, plain = lines_of(table("table-1", missing=("free-10",)), "CIFAR-10")
    assert paper[:5] == ["CIFAR-10", "L2", "Robust Train Acc.", "paper", "100.0"]
    assert ours[-9:-1] == ["measured", *["81.0 ± 1.0"] * 7]
    assert plain[-9:-1] == ["measured, plain images", *["86.0 ± 1.0"] * 7]
    assert ours[-1] == plain[-1] == "–", "what was not measured has no number"
    assert paper[-1] == "71.1"


def test_test_accuracy_has_one_view() -> None:
    (layout,) = layouts(table("table-4"))
    sources = [line.leading[-1] for line in layout.lines[:8]]
    both, three = ["paper", "measured"], ["paper", "measured", "measured, plain images"]
    assert sources == [*three, *both, *three]
    assert [line.opens_block for line in layout.lines].count(True) == 4


def test_norms_are_side_by_side_as_in_the_paper() -> None:
    first, second = layouts(table("table-3"))
    assert first.spans() == [("CIFAR-10, L2 attack", 2), ("CIFAR-10, Linf attack", 2)]
    assert second.spans()[0] == ("CIFAR-100, L2 attack", 2)
    assert list(first.algorithms) == ["TRADES", "Free-TRADES"] * 2
    (early,) = layouts(table("table-6"))
    assert list(early.algorithms) == ["Vanilla-10", "Fast (10/255)", "Free-4"]


def test_the_misprint_is_marked_and_explained() -> None:
    text = markdown(table("table-3"))
    assert "57.3 ± 0.6†" in text
    assert "† CIFAR-100, Linf, TRADES: printed robust gen. gap 57.3, its columns give 58.2." in text
    assert "†" not in markdown(table("table-1"))


def test_one_seed_has_no_spread() -> None:
    assert "| measured | 80.0 |" in markdown(table("table-6", seeds=1))


def test_runs_at_chance_and_collapsed_runs_are_listed() -> None:
    made = with_second_row(table("table-6"), above_chance=False, collapsed=2, seeds=2)
    text = "\n".join(notes(made))
    assert "Not above chance, so that their gaps say nothing: CIFAR-10, Linf, Fast (10/255)." in text
    assert "had collapsed in 2 of 2 runs" in text
    assert "same answer" not in text
    constant = "\n".join(notes(with_second_row(made, constant_answers=1)))
    assert "CIFAR-10, Linf, Fast (10/255) gives the same answer to every image in 1 of 2 runs." in constant


def test_rows_with_fewer_seeds_than_requested_are_listed() -> None:
    made = with_second_row(table("table-6", missing=("free-4",)), seeds=2)
    assert "fewer seeds" not in "\n".join(notes(table("table-6")))
    note = "Finished with fewer seeds than requested: CIFAR-10, Linf, Fast (10/255) (2 of 3); "
    assert note + "CIFAR-10, Linf, Free-4 (0 of 3)." in notes(made)


def test_notes_of_the_runs_are_printed_under_the_table() -> None:
    run_notes = ("cifar10 is represented by cifar_10.npz.", "the step α = 1 is long.")
    made = replace(table("table-1"), notes=run_notes)
    assert markdown(made).endswith("- cifar10 is represented by cifar_10.npz.\n- the step α = 1 is long.\n")
    assert r"cifar10 is represented by cifar\_10.npz." in latex(made)
    assert latex(made).isascii()


@pytest.mark.parametrize("name", TABLES)
def test_latex_is_ascii_with_equal_numbers_of_cells(name: str) -> None:
    text = latex(table(name, missing=("free-10",)))
    assert text.isascii()
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == len(layouts(table(name)))
    assert text.count("{") == text.count("}")
    assert text.count("$") % 2 == 0
    for tabular in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        width, body = len(tabular[0]), tabular[1]
        rows = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert rows
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {width - 1}
        assert not re.search(r"(?<!\\)%", body), "a bare percent sign would hide the rest of its line"


def read_csv(made: PaperTable) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(comma_separated(made)), strict=True))


@pytest.mark.parametrize("name", TABLES)
def test_csv_has_a_line_for_every_cell_that_a_program_reads(name: str) -> None:
    made = table(name, missing=("free-10",))
    lines = read_csv(made)
    cells = {(x["data"], x["norm"], x["algorithm"], x["column"], x["view"]): x for x in lines}
    assert len(cells) == len(lines)
    assert {x["table"] for x in lines} == {name}
    for row in published_tables()[name].rows:
        for column, printed in row.cells.items():
            key = (row.data, row.norm, row.label, column)
            cell = cells[*key, "" if column.endswith("_test") else "augmented"]
            assert float(cell["published"]) == printed.value
            assert cell["published_std"] == ("" if printed.std is None else str(printed.std))
            assert cell["recomputed"] == ("" if printed.recomputed is None else str(printed.recomputed))
            if row.label == "free-10":
                assert not any(cell[name] for name in ("mean", "std", "low", "high", "seeds"))
            else:
                assert float(cell["low"]) < float(cell["mean"]) < float(cell["high"])
                assert (float(cell["std"]), cell["seeds"]) == (1.0, "3")
            if not column.endswith("_test"):
                assert cells[*key, "plain"]["published"] == ""
    assert sum(bool(x["published"]) for x in lines) == sum(
        len(row.cells) for row in published_tables()[name].rows
    )


def test_csv_is_in_percent_in_both_views() -> None:
    lines = [x for x in read_csv(table("table-6", seeds=1)) if x["algorithm"] == "free-4"]
    assert [(x["column"], x["view"], float(x["mean"]), x["std"]) for x in lines] == [
        ("robust_train", "augmented", 80.0, ""),
        ("robust_train", "plain", 85.0, ""),
        ("robust_test", "", 30.0, ""),
        ("robust_gap", "augmented", 50.0, ""),
        ("robust_gap", "plain", 55.0, ""),
    ]


def test_tables_are_printed_to_the_terminal_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(document().tables)
    out = capsys.readouterr().out
    for k in range(1, 7):
        assert f"Table {k}: " in out
    assert "…" not in out
    (first,) = [line for line in out.splitlines() if line.startswith("CIFAR-10 ") and "89.7" in line]
    assert first.split()[-8:] == ["100.0", "100.0", "89.7", "89.5", "86.4", "78.9", "74.3", "71.1"]
