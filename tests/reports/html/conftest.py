"""The stores that the tests of the report read, made once."""

from pathlib import Path

import pytest

from report_store import make_hostile, make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("report") / "store")


@pytest.fixture(scope="session")
def hostile(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hostile(store, tmp_path_factory.mktemp("report") / "hostile")
