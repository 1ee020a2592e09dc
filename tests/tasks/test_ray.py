"""A Ray cluster of two nodes on this machine."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shared_grid
from freeat.errors import InputError
from freeat.tasks import make_backend, run_tasks
from freeat.training.records import Callback
from freeat.training.trainer import Stopped

ray = pytest.importorskip("ray", reason="the backend `ray` is an extra: pip install 'freeat[ray]'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.filterwarnings("default")]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes with a core each; the first is the head, the second may die."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_agent_register_timeout_ms", "120000")  # on a busy machine a node starts slowly
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.mortal = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def until(holds: Any, seconds: float = 900.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def in_mid_run(store: Path) -> list[Path]:
    """Folders of runs that have begun and saved a checkpoint."""
    return [
        path.parent
        for path in store.glob("runs/*/lease.json")
        if list(path.parent.glob("checkpoints/*.json"))
    ]


def test_a_grid_is_bit_identical_after_a_node_is_killed(tmp_path: Path, cluster: Any) -> None:
    struck: list[Path] = []

    def strike() -> None:
        until(lambda: len(in_mid_run(tmp_path)) == 2)
        struck.extend(in_mid_run(tmp_path))
        cluster.remove_node(cluster.mortal, allow_graceful=False)

    striker = threading.Thread(target=strike)
    striker.start()
    with make_backend("ray", address=cluster.address) as backend:
        done = {o.task.name: o for o in run_tasks(shared_grid.grid(tmp_path), backend)}
    striker.join()
    assert len(struck) == 2
    assert {name: o.failure for name, o in done.items() if o.failure} == {}
    assert shared_grid.main(tmp_path / "undisturbed") == 0
    assert shared_grid.results(tmp_path) == shared_grid.results(tmp_path / "undisturbed")


def test_a_stop_request_saves_checkpoints(tmp_path: Path, cluster: Any) -> None:
    tasks = [task for task in shared_grid.grid(tmp_path) if not task.needs]
    with (
        pytest.raises(Stopped, match="run the same command again"),
        make_backend("ray", address=cluster.address) as backend,
    ):
        run_tasks(tasks, backend, should_stop=lambda: bool(in_mid_run(tmp_path)))
    assert not list(tmp_path.glob("runs/*/lease.json"))
    stopped = [path for path in tmp_path.glob("runs/*/checkpoints") if list(path.glob("*.json"))]
    assert stopped


@pytest.mark.parametrize(("device", "seen"), [("auto", True), ("cpu", False)])
def test_a_run_reserves_a_gpu_unless_on_cpu(tmp_path: Path, device: str, seen: bool) -> None:
    answer = tmp_path / "gpus"

    class Looking:
        """A task that says which GPUs it may use."""

        name, key, needs, threads = "look", "look", (), 1

        def finished(self) -> bool:
            return False

        def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
            answer.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))

        def summary(self) -> str:
            return answer.read_text()

    ray.init(address="local", num_cpus=1, num_gpus=1, include_dashboard=False)
    try:
        with make_backend("ray", device=device) as backend:
            assert backend.submit(Looking()).result(timeout=300).failure is None
        assert bool(answer.read_text()) == seen
    finally:
        ray.shutdown()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:door"])
def test_an_unreachable_cluster_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=f"no Ray cluster at {address}"):
        make_backend("ray", address=address)
