"""Rows of text as aligned columns."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """One line per row, every column as wide as its widest cell; ``numbers`` are put to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            word.rjust(width) if numbers else word.ljust(width)
            for word, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
