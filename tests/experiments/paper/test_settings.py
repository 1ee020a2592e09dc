"""The settings in which runs of the paper differ from one another."""

from pathlib import Path

import pytest

from freeat.algorithms import Erm, WarmUp
from freeat.errors import InputError
from freeat.experiments.paper.scales import HOUR, PAPER, SMOKE, find_scale
from freeat.experiments.paper.settings import radius, run_of, source, train_size
from freeat.experiments.paper.tables import table_2, table_6
from freeat.experiments.tasks import Site
from freeat.runs.build import build_algorithm

SITE = Site(store=Path("store"), data_dir=Path("data"))


def test_radii_are_the_papers() -> None:
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
        ("linf", "free-4", None),
        ("l2", "trades-10", "gaussian"),
        ("linf", "free-trades-4", "gaussian"),
        ("l2", "erm", None),
    ],
)
def test_attacks_start_as_in_the_code_behind_the_paper(norm: str, algorithm: str, start: str | None) -> None:
    assert run_of(PAPER, SITE, "cifar10", norm, algorithm).spec.start == start


def test_a_warm_up_is_for_the_algorithms_that_attack() -> None:
    specs = [run_of(HOUR, SITE, "svhn", "l2", name).spec for name in ("erm", "free-4")]
    assert [spec.warmup for spec in specs] == [0.0, 0.5]
    erm, free = (build_algorithm(spec, updates=8) for spec in specs)
    assert erm == Erm()
    assert isinstance(free, WarmUp)


def test_friendly_is_trained_at_two_radii_and_judged_at_one() -> None:
    rows = {(entry.norm, entry.label): entry.runs[0] for entry in table_2(PAPER, SITE).entries}
    for norm in ("l2", "linf"):
        eps = radius("cifar10", norm)
        narrow, wide = rows[norm, "friendly-10"], rows[norm, "friendly-10-2eps"]
        assert (narrow.spec.eps, wide.spec.eps) == (eps, 2 * eps)
        assert wide.evaluation.eval_eps == eps
        assert wide.spec.alpha == eps / 4
        assert narrow.key != wide.key


def test_the_step_with_which_fast_collapses() -> None:
    steps = [entry.runs[0].spec.alpha for entry in table_6(PAPER, SITE).entries]
    assert steps == [None, 10 / 255, None]


def test_what_does_not_change_a_run_does_not_change_its_key() -> None:
    common = run_of(PAPER, SITE, "cifar10", "l2", "erm", 1)
    again = run_of(PAPER, SITE, "cifar10", "l2", "erm", 1, model="resnet18", train_size=50_000)
    assert again == common
    assert run_of(PAPER, SITE, "cifar10", "l2", "erm", 1, model="resnet50").key != common.key


def test_runs_beside_the_curves_are_judged_at_the_end_only() -> None:
    run = run_of(PAPER, SITE, "cifar10", "l2", "fast", train_size=10_000)
    assert run.evaluation.eval_every == run.spec.updates
    assert run.name == "cifar10 l2 fast n=10000 seed 0"


def test_a_miniature_scale_reads_its_data_by_path() -> None:
    assert source(SMOKE, SITE, "cifar10") == str(Path("data/cifar-10-batches-py"))
    assert source(PAPER, SITE, "cifar10") == "cifar10"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'hour'"):
        find_scale("hours")
    with pytest.raises(InputError, match="did you mean 'svhn'"):
        train_size(PAPER, "svnh")
