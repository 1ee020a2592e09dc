"""Timed steps: every kind of work has a price, and estimates hold for runs."""

import os
from dataclasses import astuple
from pathlib import Path

import pytest

from freeat.data.synthetic import write_miniatures
from freeat.errors import InputError
from freeat.experiments.paper.clock import Rates, Stopwatch, time_loading
from freeat.experiments.paper.costing import Estimator
from freeat.experiments.paper.effort import Ground, Work
from freeat.experiments.paper.scales import SMOKE
from freeat.experiments.paper.settings import run_of
from freeat.experiments.tasks import Site

GROUND = Ground(n_train=16, n_test=16, shape=(3, 32, 32), classes=10, augmented=True)


def test_every_kind_of_work_takes_time() -> None:
    spec = run_of(SMOKE, Site(store=Path("store")), "cifar10", "l2", "free-4").spec
    with Stopwatch(workers=1, device="cpu") as stopwatch:
        rates = stopwatch.rates(spec, GROUND)
    assert all(0 < seconds < 1 for seconds in astuple(rates)), rates


def test_a_timing_process_that_is_killed_is_told_of() -> None:
    spec = run_of(SMOKE, Site(store=Path("store")), "cifar10", "l2", "free-4").spec
    with Stopwatch(workers=2, device="cpu") as stopwatch:
        assert stopwatch._pool is not None
        stopwatch._pool.submit(os._exit, 1)
        with pytest.raises(InputError, match=r"ended from outside.*--jobs"):
            stopwatch.rates(spec, GROUND)


def test_seconds_are_rates_times_work() -> None:
    rates = Rates(attack=1.0, weights=2.0, both=3.0, forward=4.0, judged=5.0, asked=6.0)
    assert rates.seconds(Work(attack=1, both=2, asked=10)) == 67.0


def test_data_that_is_not_here_takes_no_time(tmp_path: Path) -> None:
    assert time_loading("cifar100", Site(store=tmp_path, data_dir=tmp_path)) == 0.0


def test_each_network_is_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []

    def fake(self: Stopwatch, spec: object, ground: Ground) -> Rates:
        timed.append(ground.shape)
        return Rates(attack=0.0, weights=1.0, both=0.0, forward=0.0, judged=0.0, asked=0.0)

    monkeypatch.setattr(Stopwatch, "rates", fake)
    write_miniatures(tmp_path, 16)
    site = Site(store=tmp_path, data_dir=tmp_path)
    estimator = Estimator(site=site, stopwatch=Stopwatch(workers=2, device="cpu"))
    costs = [estimator(run_of(SMOKE, site, "cifar10", norm, "fast")) for norm in ("l2", "linf")]
    estimator(run_of(SMOKE, site, "tiny-imagenet", "l2", "fast"))
    assert timed == [(3, 32, 32), (3, 64, 64)]
    loading = estimator.document()["seconds_to_load"][run_of(SMOKE, site, "cifar10", "l2", "erm").spec.data]
    assert costs[0].seconds == pytest.approx(16 * 8 + loading)
