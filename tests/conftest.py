"""Options shared by all tests: the device they run on."""

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device the device-dependent tests run on (cpu, cuda, mps)")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side; one thread each keeps them from fighting and their bits reproducible."""
    torch.set_num_threads(1)
