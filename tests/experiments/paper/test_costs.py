"""Counted passes equal those of the run; each network is timed once."""

from pathlib import Path

import pytest

from freeat.data.synthetic import write_synthetic
from freeat.experiments.paper import costs
from freeat.experiments.paper.catalogue import make_experiment
from freeat.experiments.paper.costs import (
    DatasetInfo,
    Estimator,
    dataset_info,
    evaluation_passes,
    passes_of,
    seconds_per_pass,
    training_passes,
)
from freeat.experiments.paper.settings import PAPER, SMOKE, run_of
from freeat.experiments.tasks import Store
from freeat.training.records import Callbacks

CIFAR10 = DatasetInfo(n_train=50_000, n_test=10_000, shape=(3, 32, 32), classes=10, augmented=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("store")
    write_synthetic(path / "data", 32)
    return Store(path=path, data_dir=path / "data", device="cpu")


@pytest.mark.parametrize("algorithm", ["erm", "vanilla-7", "fast", "free-2", "trades-10", "free-trades-4"])
def test_training_passes_equal_those_of_the_run(algorithm: str, store: Store) -> None:
    run = run_of(SMOKE, store, "cifar10", "l2", algorithm)
    run.run(Callbacks(), lambda: False)
    result = run.result()
    assert result is not None
    expected = training_passes(run, dataset_info(run.spec.data, store.data_dir))
    assert expected.gradient == result.gradient_evaluations
    assert expected.forward == result.forward_passes


def test_evaluation_passes_equal_those_of_the_run(store: Store) -> None:
    run = run_of(SMOKE, store, "cifar10", "linf", "fast")
    run.run(Callbacks(), lambda: False)
    expected = evaluation_passes(run, dataset_info(run.spec.data, store.data_dir))
    costs = [
        split.cost
        for record in run.folder.history()
        for split in (record.train, record.train_augmented, record.test)
        if split is not None
    ]
    assert expected.gradient == sum(each.gradient_evaluations for each in costs)
    assert expected.forward >= sum(each.forward_passes for each in costs)


def test_info_of_a_published_data_set_needs_no_files(tmp_path: Path) -> None:
    assert dataset_info("cifar10", tmp_path) == CIFAR10


def test_passes_of_the_papers_vanilla_run() -> None:
    run = run_of(PAPER, Store(path=Path("store")), "cifar10", "l2", "vanilla-10")
    assert training_passes(run, CIFAR10).total == pytest.approx(200 * 50_000 * 11)


def test_measurements_cost_passes_of_the_networks_they_use() -> None:
    store = Store(path=Path("store"))
    square = make_experiment("figure-2", PAPER, store).groups[0].measurements[0]
    assert square.source is None
    queries, sanity = passes_of(square, CIFAR10)
    assert queries.run == sanity.run == square.target
    assert queries.forward > 9 * 10_000 * 1000
    transfer = make_experiment("figure-9", PAPER, store).groups[0].measurements[0]
    networks = [part.run.spec.model for part in passes_of(transfer, CIFAR10)]
    assert networks == ["resnet18", "resnet18", "resnet50", "wrn34-10"]


def test_seconds_per_pass_are_positive() -> None:
    spec = run_of(SMOKE, Store(path=Path("store")), "cifar10", "l2", "free-4").spec
    assert 0 < seconds_per_pass(spec, CIFAR10, "cpu") < 1


def test_each_network_is_timed_once_and_multiplied(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []

    def fake(spec: object, info: DatasetInfo, device: str) -> float:
        timed.append(info.shape)
        return 2.0

    monkeypatch.setattr(costs, "seconds_per_pass", fake)
    estimator = Estimator(data_dir=store.data_dir, device="cpu")
    found = [estimator.cost(run_of(SMOKE, store, "cifar10", norm, "fast")) for norm in ("l2", "linf")]
    estimator.cost(run_of(SMOKE, store, "tiny-imagenet", "l2", "fast"))
    assert timed == [(3, 32, 32), (3, 64, 64)]
    assert all(cost.seconds == pytest.approx(2 * cost.passes) for cost in found)
