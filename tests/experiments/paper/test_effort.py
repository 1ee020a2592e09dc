"""What is counted before a run begins is what the run then counts."""

from pathlib import Path

import pytest

from freeat.data.synthetic import write_miniatures
from freeat.experiments.paper.effort import Ground, Work, ground_of, judging_work, training_work, work_of
from freeat.experiments.paper.figures import figure_2, figure_9
from freeat.experiments.paper.scales import PAPER, SMOKE
from freeat.experiments.paper.settings import run_of
from freeat.experiments.tasks import Site
from freeat.training.records import Callbacks

CIFAR10 = Ground(n_train=50_000, n_test=10_000, shape=(3, 32, 32), classes=10, augmented=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    store = tmp_path_factory.mktemp("store")
    write_miniatures(store / "data", 32)
    return Site(store=store, data_dir=store / "data", device="cpu")


@pytest.mark.parametrize("algorithm", ["erm", "vanilla-7", "fast", "free-2", "trades-10", "free-trades-4"])
def test_passes_are_those_of_the_run(algorithm: str, site: Site) -> None:
    run = run_of(SMOKE, site, "cifar10", "l2", algorithm)
    run.run(Callbacks(), lambda: False)
    result = run.result()
    assert result is not None
    expected = training_work(run, ground_of(run.spec.data, site.data_dir))
    assert expected.attack + expected.weights + expected.both == result["gradient_passes"]
    assert expected.forward == result["forward_passes"]


def test_judging_is_counted_as_it_is_done(site: Site) -> None:
    run = run_of(SMOKE, site, "cifar10", "linf", "fast")
    run.run(Callbacks(), lambda: False)
    expected = judging_work(run, ground_of(run.spec.data, site.data_dir))
    passes = [
        record[split]["passes"]
        for record in run.folder.history()
        for split in ("train", "train_augmented", "test")
    ]
    assert expected.judged == sum(each["gradient"] for each in passes)
    assert expected.asked >= sum(each["forward"] for each in passes)


def test_ground_of_a_known_name_needs_no_files(tmp_path: Path) -> None:
    assert ground_of("cifar10", tmp_path) == CIFAR10


def test_passes_of_the_papers_vanilla_run() -> None:
    run = run_of(PAPER, Site(store=Path("store")), "cifar10", "l2", "vanilla-10")
    assert training_work(run, CIFAR10).passes == pytest.approx(200 * 50_000 * 11)


def test_measurements_are_priced_on_the_networks_they_ask() -> None:
    site = Site(store=Path("store"))
    square = figure_2(PAPER, site).entries[0].measurements[0]
    ((target, work),) = work_of(square, CIFAR10)
    assert target in square.runs
    assert work.asked > 9 * 10_000 * 1000
    transfer = figure_9(PAPER, site).entries[0].measurements[0]
    networks = [run.spec.model for run, _ in work_of(transfer, CIFAR10)]
    assert networks == ["resnet18", "resnet18", "resnet50", "wrn34-10"]


def test_work_adds_up() -> None:
    both = Work(attack=10, weights=1) + Work(forward=3) * 2
    assert both == Work(attack=10, weights=1, forward=6)
    assert both.passes == 13
