"""The population study: a stack equals single runs, pairing, controls, bounds, and the command."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from freeat.cli.main import run
from freeat.data.batches import Batches
from freeat.errors import InputError
from freeat.evaluation.matched import paired_difference
from freeat.files.locks import LeaseLost
from freeat.learner import Learner
from freeat.reports.population import draw_population, population_markdown, population_tables
from freeat.stability.estimates import fitted_exponent
from freeat.stability.mixture import (
    attacked_risk,
    initial_weights,
    linear_population_risk,
    linear_training_risk,
    make_model,
)
from freeat.stability.population import (
    CONTROLS,
    WEAK,
    WEAK_REPLAY,
    PopulationResult,
    PopulationSettings,
    PopulationTask,
    Trajectory,
    make_arm,
    train_population,
)
from freeat.stability.population_summary import (
    exponent_difference,
    gaps,
    learning_curves,
    summarize_population,
)
from freeat.training.records import Callbacks

SMALL = PopulationSettings(d=6, n=20, batch_size=5, updates=24, seeds=3, times=4, initial_scale=0.5)
ARMS = ("erm", "vanilla-exact", "vanilla-3", "fast", "free-4", "trades-3", "free-trades-4")


NET = replace(SMALL, model="tanh", width=4, fresh=40, attack_steps=3)
CASES = [(SMALL, arm) for arm in (*ARMS, WEAK, WEAK_REPLAY)]
CASES += [(NET, arm) for arm in ("erm", "vanilla-3", "fast", "free-4", WEAK, WEAK_REPLAY)]


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize(("small", "arm"), CASES, ids=lambda case: getattr(case, "model", case))
def test_a_member_of_the_stack_is_the_single_run_of_its_seed(
    small: PopulationSettings, arm: str, norm: str
) -> None:
    s = replace(small, norm=norm)
    radius = s.radius * (0.6 if arm in CONTROLS else 1)
    replay = 4 if arm == WEAK_REPLAY else 1
    stacked = train_population(s, arm, radius=radius, replay=replay)
    for seed in range(s.seeds):
        x, y = s.mixture.draw(s.n, seed, "sample")
        model = make_model(s.model, s.d, s.width)
        weights = initial_weights(s.model, s.d, s.width, s.initial_scale, seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name])
        optimizer = torch.optim.SGD(model.parameters(), lr=s.lr)
        learner = Learner(model, optimizer, seed=seed, total_updates=s.updates)
        batches = Batches(n=s.n, size=s.batch_size, seed=seed, sampling="independent", replay=replay)
        algorithm = make_arm(arm, s, replace(s.ball, eps=radius))
        while learner.updates_left:
            rows = batches(learner.batches + 1)
            algorithm.step(learner, x[rows], y[rows])
        train, population = risks_of(model, s, seed, x, y)
        assert stacked.train["surrogate"][-1][seed] == pytest.approx(train, abs=1e-12)
        assert stacked.population["surrogate"][-1][seed] == pytest.approx(population, abs=1e-12)
        assert train != stacked.train["surrogate"][0][seed]


def risks_of(model: nn.Module, s: PopulationSettings, seed: int, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Training and population risk of one model: by the formulas of a linear one, under PGD of a net."""
    if s.model == "linear":
        w = next(model.parameters()).detach()[None]
        train = linear_training_risk(w, x[None], y[None], s.ball, "probit")
        return float(train.surrogate), float(linear_population_risk(w, s.mixture, s.ball, "probit").surrogate)
    fresh = s.mixture.draw(s.fresh, seed, "fresh")

    def one(x: Tensor) -> Tensor:
        return model(x[0])[None]

    found = (
        attacked_risk(one, x[None], y[None], s.ball, "probit", steps=s.attack_steps, seed=0)
        for x, y in ((x, y), fresh)
    )
    train, population = (float(risk.surrogate) for risk in found)
    return train, population


def test_the_replay_arm_uses_each_batch_exactly_m_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches of Free-4, each in four updates in a row."""
    used: dict[int, list[list[int]]] = {}

    class Recorded(Batches):
        def __call__(self, t: int) -> Tensor:
            rows = super().__call__(t)
            used.setdefault(self.seed, []).append(rows.tolist())
            return rows

    monkeypatch.setattr("freeat.stability.population.Batches", Recorded)
    free = PopulationTask(settings=SMALL, arm="free-4", folder=tmp_path)
    free.run(Callbacks(), lambda: False)
    of_free, used = used, {}
    replace(free, arm=WEAK_REPLAY, matched="free-4").run(Callbacks(), lambda: False)
    assert used.keys() == of_free.keys() == set(range(SMALL.seeds))
    for seed, batches in of_free.items():
        assert len(batches) == SMALL.updates // 4
        assert all(one != other for one, other in pairwise(batches))
        assert used[seed] == [batch for batch in batches for _ in range(4)]


def test_without_signal_the_population_risk_never_moves() -> None:
    s = PopulationSettings(**{**vars(SMALL), "distance": 1e-12, "eps": 2.5e11})
    trajectory = train_population(s, "vanilla-exact")
    risks = np.array(trajectory.population["zero_one"])
    assert np.ptp(risks) < 1e-9
    assert np.mean(trajectory.train["zero_one"][-1]) < np.mean(trajectory.train["zero_one"][0])


def test_the_exact_maximizer_has_strength_one_and_free_less() -> None:
    assert train_population(SMALL, "vanilla-exact").strength == pytest.approx(1)
    free = train_population(SMALL, "free-4").strength
    assert free is not None
    assert 0.3 < free < 0.95
    assert train_population(SMALL, "erm").strength == pytest.approx(0)


def _result(settings: PopulationSettings, arm: str, **options) -> PopulationResult:
    trajectory = train_population(settings, arm, **options)
    return PopulationResult(
        settings=settings, arm=arm, matched=None, radius=settings.radius, trajectory=trajectory
    )


def test_arms_share_sample_weights_and_batches() -> None:
    """At update 0 nothing differs, and the same arm twice differs in nothing."""
    one, other = train_population(SMALL, "fast"), train_population(SMALL, "free-4")
    assert one.train["surrogate"][0] == other.train["surrogate"][0]
    assert one.population["surrogate"][0] == other.population["surrogate"][0]
    summary = summarize_population([_result(SMALL, "vanilla-exact"), _result(SMALL, "fast")])
    assert [(row.arm, row.reference) for row in summary.differences] == [("fast", "vanilla-exact")]


def test_gaps_begin_at_zero() -> None:
    assert not gaps(_result(SMALL, "fast"), "surrogate")[:, 0].any()


def test_levers_compare_instances_that_differ_in_nothing_else_seed_by_seed() -> None:
    changed = [SMALL, replace(SMALL, eps=0.5), replace(SMALL, n=25), replace(SMALL, eps=0.5, norm="linf")]
    results = [_result(settings, arm) for settings in changed for arm in ("vanilla-exact", "free-4")]
    levers = summarize_population(results).levers
    radii = [row for row in levers if row.lever == "eps"]
    assert [(row.arm, row.low, row.high) for row in radii] == [
        ("vanilla-exact", 0.25, 0.5),
        ("free-4", 0.25, 0.5),
    ]
    small, large = (gaps(_result(settings, "free-4"), "surrogate")[:, -1] for settings in changed[:2])
    assert radii[1].change == paired_difference(large, small)
    trained = [row for row in levers if row.lever == "updates"]
    assert [row.high for row in trained] == [SMALL.updates] * len(results)
    own = gaps(results[1], "surrogate")
    marks = results[1].trajectory.updates
    assert trained[1].low == min(marks, key=lambda mark: abs(mark - SMALL.updates / 4))
    assert trained[1].change == paired_difference(own[:, -1], own[:, marks.index(int(trained[1].low))])
    assert not [row for row in levers if row.lever == "alpha"]


def test_free_is_compared_with_the_control_of_its_own_m_only() -> None:
    results = [_result(SMALL, arm) for arm in ("free-4", "free-8")]
    results.append(replace(_result(SMALL, "vanilla-exact"), arm=WEAK_REPLAY, matched="free-4"))
    summary = summarize_population(results)
    assert [(row.arm, row.reference) for row in summary.differences] == [("free-4", WEAK_REPLAY)]


def test_the_dimension_and_m_are_levers() -> None:
    results = [_result(replace(SMALL, d=d), arm) for d in (10, 40) for arm in ("free-2", "free-8", "fast")]
    levers = summarize_population(results).levers
    assert [(row.arm, row.low, row.high) for row in levers if row.lever == "d"] == [
        ("free-2", 10, 40),
        ("free-8", 10, 40),
        ("fast", 10, 40),
    ]
    assert [(row.arm, row.instance.d, row.low, row.high) for row in levers if row.lever == "m"] == [
        ("free", 10, 2, 8),
        ("free", 40, 2, 8),
    ]


def _with_gaps(arm: str, n: int, gap: list[float], matched: str | None = None) -> PopulationResult:
    """A result whose gaps at the last update are these, one per seed."""
    settings = replace(SMALL, n=n, seeds=len(gap))
    none = [0.0] * len(gap)
    trajectory = Trajectory(
        updates=[0, settings.updates],
        train={risk: [none, none] for risk in ("zero_one", "surrogate")},
        population={risk: [none, gap] for risk in ("zero_one", "surrogate")},
        strength=None,
        error=0.0,
    )
    return PopulationResult(
        settings=settings, arm=arm, matched=matched, radius=settings.radius, trajectory=trajectory
    )


def test_differences_of_exact_exponents_are_exact() -> None:
    exponents = {"vanilla-exact": 0.5, "free-4": 0.8, "free-4+ema": 0.7, WEAK_REPLAY: 0.4}
    results = [
        _with_gaps(arm, n, [2 * n**-a] * 24, "free-4" if arm == WEAK_REPLAY else None)
        for n in (25, 100, 400)
        for arm, a in exponents.items()
    ]
    summary = summarize_population([*results, _with_gaps("fast", 25, [1.0] * 24)])
    pairs = [(row.arm, row.reference) for row in summary.differences if row.instance.n == 400]
    assert [(row.arm, row.reference) for row in summary.exponent_differences] == pairs
    assert ("free-4", WEAK_REPLAY) in pairs
    for row in summary.exponent_differences:
        exact = pytest.approx(exponents[row.arm] - exponents[row.reference], abs=1e-12)
        assert row.difference.value == exact
        assert row.difference.low is row.difference.high is None  # all replicates are equal
        assert row.instance.n == 400
    assert "| free-4 | vanilla-exact | 0.3" in population_markdown(summary)


def test_a_difference_of_exponents_takes_the_sizes_that_both_arms_have() -> None:
    results = [_with_gaps("free-4", n, [1 / n] * 24) for n in (25, 50, 100, 200)]
    results += [_with_gaps("vanilla-exact", n, [n**-0.5] * 24) for n in (25, 50, 100)]
    (row,) = summarize_population(results).exponent_differences
    assert row.instance.n == 100
    assert row.difference.value == pytest.approx(0.5, abs=1e-12)
    assert summarize_population(results[1:]).exponent_differences == []


def test_a_gap_without_a_logarithm_has_no_difference_of_exponents() -> None:
    sizes, falling = np.array([25.0, 100.0, 400.0]), np.array([[0.3, 0.2, 0.1]] * 24)
    assert exponent_difference(sizes, falling, -falling) is None


@pytest.mark.parametrize("seeds", [6, 40])
def test_the_interval_of_a_difference_of_exponents_covers_it_and_is_narrow(seeds: int) -> None:
    """The noise of a seed is common to both arms, and partly to all sizes."""
    rng, sizes = np.random.default_rng(5), np.array([25.0, 100.0, 400.0])
    hits, hidden, widths = 0, 0, []
    for _ in range(200):
        common = 1 + 0.2 * rng.standard_normal((seeds, 1)) + 0.2 * rng.standard_normal((seeds, 3))
        arms = [sizes**-a * (common + 0.02 * rng.standard_normal((seeds, 3))) for a in (0.55, 0.5)]
        found = exponent_difference(sizes, *arms)
        first, second = (fitted_exponent(sizes, values) for values in arms)
        assert found.value == pytest.approx(first.value - second.value, abs=1e-12)
        hits += found.low <= 0.05 <= found.high
        hidden += found.excludes_zero and first.low <= second.high
        widths.append([found.high - found.low, first.high - first.low, second.high - second.low])
    paired, *separate = np.mean(widths, 0)
    assert 180 <= hits <= 199
    assert paired < 0.25 * np.hypot(*separate)
    assert hidden > 0, "a difference that overlapping intervals hide"


@pytest.mark.parametrize("bad", [{"d": 0}, {"d": -3}, {"sigma": -1.0}, {"sigma": math.inf}])
def test_impossible_mixtures_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"--{next(iter(bad))}"):
        PopulationSettings(**bad)


def test_the_step_of_the_attack_is_a_lever_of_the_algorithms_that_take_it() -> None:
    results = [
        _result(replace(SMALL, alpha=alpha), arm)
        for alpha in (0.5, 1.0)
        for arm in ("free-4", "vanilla-exact")
    ]
    steps = [row for row in summarize_population(results).levers if row.lever == "alpha"]
    assert [(row.arm, row.low, row.high) for row in steps] == [("free-4", 0.5, 1.0)]


def test_replayed_batches_hold_the_same_rows() -> None:
    once, thrice = Batches(n=20, size=4, seed=1), Batches(n=20, size=4, seed=1, replay=3)
    for t in range(1, 13):
        assert thrice(t).equal(once((t - 1) // 3 + 1))
    with pytest.raises(InputError, match="at least 1"):
        Batches(n=20, size=4, seed=1, replay=0)


def test_controls_train_at_the_strength_of_free(tmp_path) -> None:
    tasks = [
        PopulationTask(
            settings=SMALL, arm=arm, folder=tmp_path, matched="free-4" if arm != "free-4" else None
        )
        for arm in ("free-4", WEAK, WEAK_REPLAY)
    ]
    for task in tasks:
        assert task.result() is None
        task.run(Callbacks(), lambda: False)
    free, weak, replay = (task.result() for task in tasks)
    assert free is not None
    assert weak is not None
    assert replay is not None
    assert weak.radius == pytest.approx(SMALL.radius * free.trajectory.strength)
    assert tasks[1].needs == (tasks[0].key,)
    assert weak.trajectory.train != replay.trajectory.train
    summary = summarize_population([free, weak, replay])
    assert ("free-4", WEAK_REPLAY) in [(row.arm, row.reference) for row in summary.differences]


def test_curves_of_slow_weights_begin_where_they_do(tmp_path) -> None:
    results = []
    for arm in ("vanilla-10", "vanilla-10+proximal=0.1"):
        task = PopulationTask(settings=SMALL, arm=arm, folder=tmp_path)
        task.run(Callbacks(), lambda: False)
        results.append(task.result())
    plain, slow = results
    late = [update for update in SMALL.marks if update >= SMALL.updates // 2]
    assert len(late) < len(SMALL.marks)
    assert learning_curves(plain).fit.shape[1] == len(SMALL.marks)
    assert learning_curves(slow).fit.shape[1] == learning_curves(slow).gap.shape[1] == len(late)
    rows = {row.arm: row for row in summarize_population(results).arms}
    assert rows["vanilla-10+proximal=0.1"].curve_updates == late
    assert len(rows["vanilla-10+proximal=0.1"].curve_gap) == len(late)
    assert rows["vanilla-10"].curve_updates == SMALL.marks


def test_all_arms_replay_their_batches_and_parts_begin_when_they_are_to(tmp_path) -> None:
    settings = replace(SMALL, replay=4)
    assert train_population(settings, "vanilla-3") == train_population(SMALL, "vanilla-3", replay=4)
    assert train_population(settings, "vanilla-3") != train_population(SMALL, "vanilla-3")
    late, early = (replace(SMALL, proximal_from=epoch, proximal_every=0.5) for epoch in (5.0, 1.0))
    swa = [train_population(one, "fast+swa") for one in (late, early)]
    assert swa[0] != swa[1]
    with pytest.raises(InputError, match="theorems draw every batch anew"):
        replace(SMALL, theorem=True, d=2, distance=0.6, sigma=0.1, replay=2)
    with pytest.raises(InputError, match="must not be negative"):
        replace(SMALL, awp_from=-1.0)


def test_settings_that_are_the_usual_ones_find_stored_results() -> None:
    assert not {"replay", "awp_from", "proximal_from", "proximal_every"} & SMALL.facts.keys()
    assert replace(SMALL, replay=2, proximal_from=3.0).facts == {
        **SMALL.facts,
        "replay": 2,
        "proximal_from": 3.0,
    }


def test_a_result_of_older_semantics_is_made_again(tmp_path, monkeypatch) -> None:
    task = PopulationTask(settings=SMALL, arm="fast", folder=tmp_path)
    monkeypatch.setattr("freeat.stability.population.SEMANTICS", 2)
    task.run(Callbacks(), lambda: False)
    assert task.finished()
    monkeypatch.undo()
    assert not task.finished()


def test_a_result_is_not_stored_once_the_lease_is_lost(tmp_path, monkeypatch) -> None:
    task = PopulationTask(settings=SMALL, arm="fast", folder=tmp_path)

    def lose_lease(*args: object, **options: object) -> None:
        for lease in tmp_path.rglob("lease.json"):
            lease.unlink()

    monkeypatch.setattr("freeat.stability.population.train_population", lose_lease)
    with pytest.raises(LeaseLost):
        task.run(Callbacks(), lambda: False)
    assert not task.path.exists()


def test_the_bounds_hold_on_the_truncated_instance() -> None:
    s = PopulationSettings(
        d=2, distance=0.6, sigma=0.1, n=200, batch_size=5, updates=60, lr=0.1, seeds=20, theorem=True, eps=0.2
    )
    summary = summarize_population([_result(s, arm) for arm in ("vanilla-exact", "fast", "free-4")])
    found = {(row.arm, row.bound_name): row for row in summary.bounds}
    assert {name for _, name in found} == {"Theorem 2", "sharper", "Theorem 5", "Theorem 4"}
    for row in found.values():
        assert row.measured.high is not None
        assert row.measured.high < row.bound
    assert found["vanilla-exact", "sharper"].bound < found["vanilla-exact", "Theorem 2"].bound


def test_a_net_is_measured_on_fresh_draws_with_a_stated_error() -> None:
    s = PopulationSettings(**{**vars(SMALL), "model": "tanh", "width": 4, "fresh": 200, "attack_steps": 3})
    trajectory = train_population(s, "free-4")
    assert 0 < trajectory.error < 0.05
    assert trajectory.strength is not None
    tasks = [PopulationTask(settings=each, arm="fast", folder=Path("unused")) for each in (s, SMALL)]
    of_net, of_linear = (
        population_tables(summarize_population([task.compute(Callbacks(), lambda: False)]))[0].notes
        for task in tasks
    )
    assert of_linear == []
    assert "with a standard error of at most 0.0" in of_net[0]
    with pytest.raises(InputError, match="linear models only"):
        make_arm("vanilla-exact", s, s.ball)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 21}, "batch-size"),
        ({"eps": 0.0}, "eps"),
        ({"norm": "l1"}, "norm"),
        ({"model": "forest"}, "model"),
        ({"theorem": True, "norm": "linf"}, "theorem"),
        ({"alpha": -1.0}, "alpha"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_bad_settings_are_refused(change, message) -> None:
    with pytest.raises(InputError, match=message):
        PopulationSettings(**{**vars(SMALL), **change})


def test_the_command_prints_tables_stores_them_and_resumes(tmp_path, capsys) -> None:
    out = tmp_path / "population"
    command = ["population", "--d", "6", "--n", "12,24,48", "--batch-size", "5", "--updates", "60"]
    command += ["--seeds", "24", "--times", "4", "--jobs", "1", "--out", str(out)]
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "free-4" in text
    assert "Exponent a" in text
    assert "Difference of the exponents" in text
    assert (out / "population.png").stat().st_size > 1000
    before = {path: path.stat().st_mtime_ns for path in (out / "results").glob("*.json")}
    assert len(before) == 15
    assert run([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["summary"]["arms"]) == 15
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_command_refuses_a_match_that_is_not_free(tmp_path, capsys) -> None:
    assert run(["population", "--match", "fast", "--out", str(tmp_path / "p")]) == 2
    assert "Free run" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("arm", ["trades-10", "free-trades-4"])
def test_objectives_that_no_theorem_covers_are_refused(tmp_path, capsys, arm: str) -> None:
    command = ["population", "--theorem", "--distance", "0.6", "--sigma", "0.1", "--algorithms", arm]
    assert run([*command, "--out", str(tmp_path / "p")]) == 2
    assert "not trades" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


def test_parts_are_added_to_all_arms_but_the_controls(tmp_path, capsys) -> None:
    small = ["--d", "4", "--n", "12", "--updates", "8", "--seeds", "2", "--times", "2", "--jobs", "1"]
    assert (
        run(["population", *small, "--with", "none,awp=0,ema", "--out", str(tmp_path / "p"), "--json"]) == 0
    )
    arms = [row["arm"] for row in json.loads(capsys.readouterr().out)["summary"]["arms"]]
    plain = ["vanilla-exact", "fast", "free-4"]
    assert sorted(arms) == sorted([*plain, *(f"{arm}+ema" for arm in plain), WEAK, WEAK_REPLAY])


def test_arms_that_never_share_a_training_risk_are_drawn_without_it(tmp_path) -> None:
    tasks = [PopulationTask(settings=SMALL, arm=arm, folder=tmp_path) for arm in ("vanilla-exact", "erm")]
    results = [task.compute(Callbacks(), lambda: False) for task in tasks]
    summary = summarize_population(results)
    apart = replace(summary, differences=tuple(replace(row, matched=None) for row in summary.differences))
    assert apart.differences
    assert draw_population(tmp_path / "population.png", apart).is_file()


def test_the_report_shows_a_population_study(tmp_path, capsys) -> None:
    out = tmp_path / "population"
    command = ["population", "--d", "6", "--n", "12,14,16", "--batch-size", "5", "--updates", "12"]
    assert run([*command, "--seeds", "3", "--times", "4", "--jobs", "1", "--out", str(out)]) == 0
    assert run(["report", str(out), "--out", str(tmp_path / "report.html"), "--json"]) == 0
    assert "population" in json.loads(capsys.readouterr().out.splitlines()[-1])["sections"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The exact gap on a Gaussian mixture" in page
    assert "No run is finished" not in page
    assert re.search(r"the exact gap of free.4 is smaller than that of vanilla-exact on \d", page)
    assert "vanilla-weak-replay" in page
    assert "Difference of the exponents a" in page
