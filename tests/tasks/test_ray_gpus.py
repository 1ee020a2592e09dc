"""How many GPUs a run reserves of a Ray cluster where nobody said; Ray itself is not needed for it."""

import pytest

from freeat.tasks.ray import gpus_to_reserve


@pytest.mark.parametrize(
    ("device", "resources", "gpus"),
    [
        ("auto", {"CPU": 8.0, "GPU": 4.0}, 1.0),
        ("cuda", {"CPU": 8.0, "GPU": 1.0}, 1.0),
        ("cuda:0", {"CPU": 8.0, "GPU": 1.0}, 1.0),
        ("cpu", {"CPU": 8.0, "GPU": 4.0}, 0.0),
        ("mps", {"CPU": 8.0, "GPU": 4.0}, 0.0),
        ("auto", {"CPU": 8.0}, 0.0),
        ("cuda", {"CPU": 8.0}, 0.0),
    ],
)
def test_one_where_the_cluster_has_gpus_that_runs_use(
    device: str, resources: dict[str, float], gpus: float
) -> None:
    assert gpus_to_reserve(device, resources) == gpus
