"""How many runs a Ray cluster has room for: without Ray, from what it says of itself."""

import pytest

from freeat.tasks.ray import room_for_runs


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
    assert room_for_runs(resources, threads=threads, gpus_per_run=gpus_per_run) == room
