"""Long series made short enough for a page."""

MOST = 240
"""Points a line has at most: more than a screen shows apart."""


def thinned(length: int, most: int = MOST) -> list[int]:
    """The places to keep: all, or ``most`` evenly spread with both ends."""
    if length <= most:
        return list(range(length))
    return sorted({round(k * (length - 1) / (most - 1)) for k in range(most)})
