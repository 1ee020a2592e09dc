"""Columns of text."""

from freeat.reports.columns import aligned


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("name", "n"), ("a", "1000")]
    assert aligned(rows) == ["name  n", "a     1000"]
    assert aligned(rows, numbers=True) == ["name     n", "   a  1000"]
