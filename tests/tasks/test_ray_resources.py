"""What a run takes of a Ray cluster, and how many fit: from what the cluster says of itself, without Ray."""

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
def test_one_where_the_cluster_has_gpus_that_runs_use(
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
def test_a_plan_counts_on_what_the_cluster_has(
    resources: dict[str, float], threads: int, gpus_per_run: float, room: int
) -> None:
    assert runs_at_once(resources, threads=threads, gpus_per_run=gpus_per_run) == room
