"""Real data sets for the tests that want them."""

import pytest

from freeat.data import available


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose data set has not been fetched."""
    for marker in item.iter_markers("data"):
        (entry,) = (entry for entry in available() if entry.name == marker.args[0])
        if entry.state != "published":
            pytest.skip(f"{entry.title} is {entry.state}: run `freeat data fetch {entry.name}`")
