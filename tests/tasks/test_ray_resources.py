"""GPUs that a run reserves on a Ray cluster, and how many runs fit; without Ray."""

import pytest

from freeat.tasks.ray import gpus_to_reserve, runs_at_once


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
def test_a_run_reserves_one_gpu_if_its_device_uses_them(
    device: str, resources: dict[str, float], gpus: float
) -> None:
    assert gpus_to_reserve(device, resources) == gpus


@pytest.mark.parametrize(
    ("resources", "threads", "gpus_per_run", "room"),
    [
        ({"CPU": 64.0}, 4, 0.0, 16),
        ({"CPU": 64.0, "GPU": 8.0}, 4, 1.0, 8),
        ({"CPU": 64.0, "GPU": 8.0}, 4, 0.25, 16),
        ({"CPU": 2.0}, 4, 0.0, 1),
        ({}, 4, 1.0, 1),
    ],
)
def test_runs_at_once_follow_the_resources_of_the_cluster(
    resources: dict[str, float], threads: int, gpus_per_run: float, room: int
) -> None:
    assert runs_at_once(resources, threads=threads, gpus_per_run=gpus_per_run) == room
