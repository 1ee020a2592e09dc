"""The published numbers: all of them, and consistent with themselves but for the misprints."""

import pytest

from freeat.data.catalogue import SOURCES
from freeat.experiments.paper.published import PublishedRow, published_tables

ROWS = [row for table in published_tables().values() for row in table.rows]


def name(row: PublishedRow) -> str:
    return f"{row.table} {row.data} {row.norm} {row.label}"


def test_every_number_of_the_six_tables_is_read() -> None:
    assert {n: len(table.rows) for n, table in published_tables().items()} == {
        "table-1": 32,
        "table-2": 6,
        "table-3": 8,
        "table-4": 32,
        "table-5": 8,
        "table-6": 3,
    }
    assert sum(len(row.cells) for row in ROWS) == 3 * (32 + 6 + 8 + 32 + 3) + 6 * 8


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_a_gap_is_the_difference_of_its_columns_or_carries_the_recomputed_one(row: PublishedRow) -> None:
    for kind in ("robust", "clean") if row.table == "table-5" else ("robust",):
        train, test, gap = (row.cells[f"{kind}_{part}"] for part in ("train", "test", "gap"))
        recomputed = round(train.value - test.value, 1)
        if recomputed == gap.value:
            assert gap.recomputed is None
        else:
            assert gap.recomputed == recomputed
        assert train.recomputed is None
        assert test.recomputed is None
        assert all(0 <= cell.value <= 100 for cell in (train, test, gap))


def test_the_misprint_of_table_3_is_known_and_the_rest_is_rounding() -> None:
    differing = {
        (row.data, row.norm, row.label): (cell.value, cell.recomputed)
        for row in ROWS
        for cell in row.cells.values()
        if cell.recomputed is not None
    }
    assert differing == {
        ("cifar100", "linf", "trades-10"): (57.3, 58.2),
        ("cifar10", "linf", "trades-10"): (35.3, 35.2),
        ("cifar100", "l2", "free-trades-4"): (41.1, 41.2),
    }


def test_only_table_3_has_several_runs() -> None:
    for table in published_tables().values():
        several = table.name == "table-3"
        assert table.runs == (5 if several else 1)
        assert all((cell.std is not None) == several for row in table.rows for cell in row.cells.values())


def test_tables_agree_on_the_models_they_share() -> None:
    """Vanilla-10 and Free-4 are in Tables 1, 2 and 5."""
    first = published_tables()["table-1"]
    for other in ("table-2", "table-5"):
        for row in published_tables()[other].rows:
            twin = first.row(row.data, row.norm, row.label)
            if twin is not None:
                assert {c: row.cells[c] for c in first.columns} == dict(twin.cells), name(row)


def test_names_are_those_of_the_library() -> None:
    assert {row.data for row in ROWS} <= SOURCES.keys()
    assert {row.norm for row in ROWS} == {"l2", "linf"}
    assert published_tables()["table-6"].at == 0.25
    assert published_tables()["table-5"].columns[0] == "clean_train"
    assert published_tables()["table-1"].row("cifar10", "l2", "erm") is None
