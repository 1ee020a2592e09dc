"""The settings in which runs of the paper differ from one another, and what every scale keeps of the paper."""

from pathlib import Path

import pytest

from freeat import Erm
from freeat.algorithms import WarmUp
from freeat.errors import InputError
from freeat.experiments.paper.catalogue import make_experiment
from freeat.experiments.paper.settings import (
    HOUR,
    NIGHT,
    NORMS,
    PAPER,
    SCALES,
    SMOKE,
    find_scale,
    radius,
    run_of,
    source,
    train_size,
)
from freeat.experiments.tasks import Store
from freeat.runs.build import build_algorithm

STORE = Store(path=Path("store"), data_dir=Path("data"))


def test_radii_equal_the_papers() -> None:
    assert {
        (data, norm): round(255 * radius(data, norm)) for data in PAPER.setups for norm in ("l2", "linf")
    } == {
        ("cifar10", "l2"): 128,
        ("cifar10", "linf"): 8,
        ("cifar100", "l2"): 128,
        ("cifar100", "linf"): 8,
        ("tiny-imagenet", "l2"): 128,
        ("tiny-imagenet", "linf"): 4,
        ("svhn", "l2"): 128,
        ("svhn", "linf"): 8,
    }


@pytest.mark.parametrize(
    ("norm", "algorithm", "start"),
    [
        ("l2", "vanilla-10", "radius"),
        ("l2", "fast", "radius"),
        ("l2", "free-4", "radius"),
        ("linf", "free-4", "uniform"),
        ("l2", "trades-10", "gaussian"),
        ("linf", "free-trades-4", "gaussian"),
        ("l2", "erm", None),
    ],
)
def test_attacks_start_as_in_the_code_behind_the_paper(norm: str, algorithm: str, start: str | None) -> None:
    assert run_of(PAPER, STORE, "cifar10", norm, algorithm).spec.start == start


def test_only_adversarial_algorithms_are_warmed_up() -> None:
    specs = [run_of(HOUR, STORE, "svhn", "l2", name).spec for name in ("erm", "free-4")]
    assert [spec.warmup for spec in specs] == [0.0, 0.5]
    erm, free = (build_algorithm(spec, updates=8) for spec in specs)
    assert erm == Erm()
    assert isinstance(free, WarmUp)


def test_friendly_is_trained_at_two_radii_and_evaluated_at_one() -> None:
    rows = {
        (group.norm, group.label): group.runs[0] for group in make_experiment("table-2", PAPER, STORE).groups
    }
    for norm in ("l2", "linf"):
        eps = radius("cifar10", norm)
        narrow, wide = rows[norm, "friendly-10"], rows[norm, "friendly-10-2eps"]
        assert (narrow.spec.eps, wide.spec.eps) == (eps, 2 * eps)
        assert wide.evaluation.eval_eps == eps
        assert wide.spec.alpha == eps / 4
        assert narrow.key != wide.key


def test_table_6_trains_fast_with_the_long_step() -> None:
    steps = [group.runs[0].spec.alpha for group in make_experiment("table-6", PAPER, STORE).groups]
    assert steps == [None, 10 / 255, None]


def test_changes_equal_to_the_common_settings_keep_the_key() -> None:
    common = run_of(PAPER, STORE, "cifar10", "l2", "erm", 1)
    again = run_of(PAPER, STORE, "cifar10", "l2", "erm", 1, model="resnet18", train_size=50_000)
    assert again == common
    assert run_of(PAPER, STORE, "cifar10", "l2", "erm", 1, model="resnet50").key != common.key


def test_runs_outside_the_curves_are_evaluated_at_the_end_only() -> None:
    run = run_of(PAPER, STORE, "cifar10", "l2", "fast", train_size=10_000)
    assert run.evaluation.eval_every == run.spec.updates
    assert run.name == "cifar10 l2 fast n=10000 seed 0"


def test_a_synthetic_scale_reads_its_data_by_path() -> None:
    assert source(SMOKE, STORE, "cifar10") == str(Path("data/cifar-10-batches-py"))
    assert source(PAPER, STORE, "cifar10") == "cifar10"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'hour'"):
        find_scale("hours")
    with pytest.raises(InputError, match="did you mean 'svhn'"):
        train_size(PAPER, "svnh")


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("norm", NORMS)
def test_square_is_run_at_the_training_radii(name: str, norm: str) -> None:
    """The claim that no gradients are masked compares it with PGD there."""
    scale = find_scale(name)
    radii = scale.square_grid.radii(norm)
    assert all(radius(data, norm) in radii for data in ("cifar10", "cifar100", "tiny-imagenet"))


@pytest.mark.parametrize("name", ["paper", "night", "hour"])
def test_curves_have_twelve_points_or_more_on_one_sample_for_all_algorithms(name: str) -> None:
    scale = find_scale(name)
    for norm in NORMS:
        for data in scale.setups:
            runs = [
                run_of(scale, STORE, data, norm, algorithm) for algorithm in ("vanilla-10", "free-8", "fast")
            ]
            sizes = {(run.evaluation.eval_size, run.evaluation.eval_every) for run in runs}
            ((size, every),) = sizes
            assert size is not None
            assert size >= 128
            assert every is not None
            assert (runs[0].spec.updates or 0) // every >= 12


@pytest.mark.parametrize("name", SCALES)
def test_a_quarter_of_the_training_is_on_the_curve(name: str) -> None:
    assert find_scale(name).curve_points % 4 == 0


def test_the_paper_scale_has_the_papers_rate_batch_and_no_warmup() -> None:
    setups = find_scale("paper").setups.values()
    assert {(setup.lr, setup.b, setup.n, setup.warmup) for setup in setups} == {(0.1, 128, None, 0.0)}


def test_an_unknown_scale_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="hour"):
        find_scale("houre")


def test_scale_night_trains_on_a_thousand_images_or_more() -> None:
    assert all((setup.n or 0) >= 1000 for setup in NIGHT.setups.values())
