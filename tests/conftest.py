"""Options and fixtures shared by all tests: the device they run on, fetched data, laws without a deadline."""

import pytest
import torch
from hypothesis import HealthCheck, settings

from freeat.data import available

pytest_plugins = ["robust_net"]

# A law holds or does not, however busy the machine is.
settings.register_profile("no-clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no-clock")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", default="cpu", help="device the device-dependent tests run on (cpu, cuda, mps)"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose data set has not been fetched."""
    for marker in item.iter_markers("data"):
        (entry,) = (entry for entry in available() if entry.name == marker.args[0])
        if entry.state != "published":
            pytest.skip(f"{entry.title} is {entry.state}: run `freeat data fetch {entry.name}`")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side; one thread each keeps them from fighting and their bits reproducible."""
    torch.set_num_threads(1)
