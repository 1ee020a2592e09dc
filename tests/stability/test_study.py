"""Studies: twin results that are stored and resumed, and their summary."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from freeat.cli.options import split_commas
from freeat.cli.stability import parse_sizes
from freeat.data import DataSet, Images, load_data
from freeat.errors import InputError
from freeat.files.documents import decoded, plain, read_document, write_document
from freeat.reports.stability import study_lines
from freeat.runs.run import RunOptions
from freeat.stability import EngineChoice
from freeat.stability.estimates import fitted_exponent
from freeat.stability.results import (
    Distances,
    ProbeRecord,
    StudySettings,
    TwinRecorder,
    TwinResult,
    TwinSetup,
    run_twins,
    spread,
)
from freeat.stability.study import StabilityStudy, StudyDocument
from freeat.stability.summary import (
    SummaryRow,
    applicable_bound,
    constants_of,
    differences,
    exponents,
    summarize,
)
from freeat.training.records import Callbacks
from freeat.training.trainer import Stopped
from samples import some_images

CPU = torch.device("cpu")
MINE = '''
from dataclasses import dataclass

from freeat import Erm
from freeat.objectives import CrossEntropy, Objective


@dataclass(frozen=True, kw_only=True)
class Mine:
    """Training at the images themselves."""

    objective: Objective = CrossEntropy()
    scale: float = 1.0
    updates_per_batch = 1
    cost = Erm().cost

    def step(self, learner, x, y):
        return Erm(objective=self.objective).step(learner, x, y)


@dataclass(frozen=True, kw_only=True)
class OwnLoss:
    """Training with a loss that cannot be replaced."""

    updates_per_batch = 1
    cost = Erm().cost

    def step(self, learner, x, y):
        return Erm().step(learner, x, y)
'''


@pytest.fixture(scope="module")
def corners(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of small images, which tasks read themselves."""
    train, test = some_images(60), some_images(30, seed=5)
    path = tmp_path_factory.mktemp("data") / "corners.npz"
    arrays = {"x_train": train.x, "y_train": train.y, "x_test": test.x, "y_test": test.y}
    np.savez(path, **{name: array.numpy() for name, array in arrays.items()})
    return str(path)


@pytest.fixture(scope="module")
def data(corners: str) -> DataSet:
    return load_data(corners)


def some_settings(corners: str, **changes: object) -> StudySettings:
    values = {
        "data": corners,
        "model": "mlp-w8-softplus",
        "eps": 0.5,
        "updates": 12,
        "batch_size": 5,
        "replaced": 3,
        "probes": 8,
        "attack_steps": 3,
        "eval_size": 10,
        "times": 4,
        "probe_times": 2,
        "constant_points": 0,
    }
    return StudySettings(**{**values, **changes})  # type: ignore[arg-type]


def some_study(folder: Path, corners: str, **changes: object) -> StabilityStudy:
    values = {
        "settings": some_settings(corners),
        "algorithms": ("vanilla-2", "fast", "free-3"),
        "seeds": 2,
        "sizes": (20,),
        "options": RunOptions(folder=folder, device="cpu"),
        "engine": "separate",
    }
    return StabilityStudy(**{**values, **changes})  # type: ignore[arg-type]


def run_study(study: StabilityStudy, data: DataSet) -> list[TwinResult]:
    _, tasks = study.prepare(data)
    for task in tasks:
        task.run(Callbacks(), lambda: False)
    return [result for task in tasks if (result := task.result()) is not None]


def twins_of(
    settings: StudySettings, data: DataSet, name: str, *, seed: int = 0, engine: str = "stacked"
) -> TwinResult:
    return run_twins(TwinSetup(settings, data, name, n=20, seed=seed, device=CPU), engine)


def test_result_holds_distances_probes_and_constants(corners: str, data: DataSet) -> None:
    settings = some_settings(corners, mode="theorem", lr=0.5, constant_points=4)
    result = twins_of(settings, data, "free-3")
    assert [row.update for row in result.distances] == [3, 6, 9, 12]
    assert [probe.update for probe in result.probes] == [6, 12]
    assert np.array(result.differences).shape == (3, 8 + 3 + 3)
    assert len(result.t0) == 3
    for k, t0 in enumerate(result.t0):
        for row in result.distances:
            assert (row.d_w[k] > 0) == (t0 is not None and row.update >= t0)
    assert result.constants.gradients == 2 * 2 * 4 + 12 * 5
    assert result.constants.beta > 0
    assert all(len(probe.robust_train) == 4 for probe in result.probes)


def test_a_stored_result_is_read_back_whole(corners: str, data: DataSet, tmp_path: Path) -> None:
    settings = some_settings(corners, mode="theorem", constant_points=4)
    result = twins_of(settings, data, "free-3")
    write_document(tmp_path / "result.json", "twins", result)
    assert read_document(tmp_path / "result.json", "twins", TwinResult) == result
    assert decoded(plain(settings), StudySettings, "here") == settings


def test_both_engines_give_the_same_result(corners: str, data: DataSet) -> None:
    one, two = (
        twins_of(some_settings(corners), data, "free-3", seed=1, engine=engine)
        for engine in ("stacked", "separate")
    )
    assert one.t0 == two.t0
    np.testing.assert_allclose(one.differences, two.differences, atol=2e-4)
    np.testing.assert_allclose(one.distances[-1].d_w, two.distances[-1].d_w, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("mode", ["theorem", "ordinary"])
def test_every_algorithm_and_norm_can_be_studied(mode: str, corners: str, data: DataSet) -> None:
    for norm, eps in (("l2", 0.3), ("linf", 0.05)):
        for name in ("erm", "vanilla-2", "trades-2", "free-trades-2", "friendly-2"):
            settings = some_settings(corners, mode=mode, norm=norm, eps=eps, updates=4, probe_times=1)
            assert twins_of(settings, data, name).distances


def test_study_resumes_task_by_task(corners: str, data: DataSet, tmp_path: Path) -> None:
    study = some_study(tmp_path / "study", corners)
    _, tasks = study.prepare(data)
    for task in tasks[:2]:
        task.run(Callbacks(), lambda: False)
    asked = iter([False] * 3 + [True])
    with pytest.raises(Stopped, match="to resume"):
        tasks[2].run(Callbacks(), lambda: next(asked))
    assert [task.finished() for task in tasks] == [True, True, False, False, False, False]
    path = tasks[0].path
    before = path.read_bytes()
    results = run_study(study, data)
    assert len(results) == 6
    assert path.read_bytes() == before
    fresh = run_study(some_study(tmp_path / "again", corners), data)
    for one, two in zip(results, fresh, strict=True):
        assert replace(one, seconds=0.0) == replace(two, seconds=0.0)


def test_task_summary_describes_its_result(corners: str, data: DataSet, tmp_path: Path) -> None:
    study = some_study(tmp_path, corners, algorithms=("fast",), seeds=1)
    (task,) = study.prepare(data)[1]
    assert (task.name, task.summary()) == ("fast n=20 seed 0", "not finished")
    task.run(Callbacks(), lambda: False)
    assert task.summary().startswith("distance ")
    with_diverged = replace(task.result(), diverged=4)
    write_document(task.path, "twins", with_diverged)
    assert task.summary() == "diverged by update 4 (separate)"
    task.path.write_text("{")
    with pytest.raises(InputError, match="damaged"):
        task.finished()


def test_diverged_seeds_are_left_out_with_the_reason(corners: str, data: DataSet, tmp_path: Path) -> None:
    study = some_study(tmp_path, corners, sizes=(15, 20))
    results = run_study(study, data)

    def diverged(result: TwinResult) -> TwinResult:
        keep = {
            name: getattr(result, name)
            for name in ("algorithm", "n", "seed", "engine", "seconds", "replaced")
        }
        return TwinResult(**keep, diverged=7)

    with_diverged = [
        diverged(r) if r.algorithm == "fast" or (r.algorithm == "free-3" and r.seed == 1) else r
        for r in results
    ]
    rows = {(row.algorithm, row.n): row for row in summarize(study.settings, with_diverged, data.train)}
    whole = {(row.algorithm, row.n): row for row in summarize(study.settings, results, data.train)}
    equal = rows["vanilla-2", 20].at_equal_accuracy
    assert rows["vanilla-2", 20] == replace(whole["vanilla-2", 20], at_equal_accuracy=equal)
    reason = rows["fast", 20].reason
    assert rows["fast", 20] == SummaryRow(algorithm="fast", n=20, diverged=2, reason=reason)
    assert "2 of 2 seeds diverged, first seen at update 7: nothing could be measured" in reason
    assert (rows["free-3", 20].seeds, rows["free-3", 20].diverged) == (1, 1)
    assert "they are left out" in rows["free-3", 20].reason
    assert [fit.algorithm for fit in exponents(with_diverged, list(rows.values()))] == ["vanilla-2", "free-3"]


def test_folder_of_another_study_is_refused(corners: str, data: DataSet, tmp_path: Path) -> None:
    some_study(tmp_path / "one", corners).prepare(data)
    with pytest.raises(InputError, match=r"another setting \(updates\)"):
        some_study(tmp_path / "one", corners, settings=some_settings(corners, updates=13)).prepare(data)
    with pytest.raises(InputError, match="other data"):
        some_study(tmp_path / "one", corners).prepare(load_data("digits"))
    some_study(tmp_path / "one", corners, sizes=(20, 30), seeds=9).prepare(data)
    path = tmp_path / "one" / "study.json"
    stored = read_document(path, "study", StudyDocument)
    write_document(path, "study", replace(stored, semantics=2))
    with pytest.raises(InputError, match="older semantics"):
        some_study(tmp_path / "one", corners).prepare(data)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="nothing was touched"):
        some_study(tmp_path / "two", corners).prepare(data)


def test_the_engine_is_measured_once_and_stored(corners: str, data: DataSet, tmp_path: Path) -> None:
    study = some_study(tmp_path, corners, algorithms=("fast",), engine=None)
    results = run_study(study, data)
    stored = read_document(tmp_path / "study.json", "study", StudyDocument)
    assert stored.engines["fast"].engine == results[0].engine == results[1].engine
    other = {"stacked": "separate", "separate": "stacked"}[results[0].engine]
    changed = replace(stored, engines={"fast": replace(stored.engines["fast"], engine=other)})
    write_document(tmp_path / "study.json", "study", changed)
    (tmp_path / "results" / "fast-n20-seed1" / "result.json").unlink()
    assert [result.engine for result in run_study(study, data)] == [results[0].engine, other]


def test_two_processes_that_begin_a_study_use_one_choice_of_engines(
    corners: str, data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def choose(*args: object) -> EngineChoice:
        measured.append("stacked" if measured else "separate")
        chosen = EngineChoice(engine=measured[-1], seconds_per_batch={})
        time.sleep(0.5)
        return chosen

    monkeypatch.setattr("freeat.stability.study.choose_engine", choose)
    study = some_study(tmp_path / "study", corners, algorithms=("fast",), engine=None)
    with ThreadPoolExecutor(2) as pool:
        prepared = list(pool.map(lambda _: study.prepare(data), range(2)))
    assert measured == ["separate"]
    assert prepared[0] == prepared[1]
    assert {task.engine for task in prepared[0][1]} == {"separate"}


def test_seeds_share_the_sample_its_neighbours_and_the_probes(corners: str, data: DataSet) -> None:
    """In Definition 1 the expectation is over the algorithm's draws only: S, S′ and x are fixed."""
    first, second = (
        TwinSetup(some_settings(corners), data, "free-3", n=20, seed=seed, device=CPU) for seed in (0, 1)
    )
    assert torch.equal(first.twins.sample.index, second.twins.sample.index)
    assert first.twins.replaced == second.twins.replaced
    assert torch.equal(first.twins.replacements.index, second.twins.replacements.index)
    probes = [TwinRecorder(setup).probe_images.index for setup in (first, second)]
    assert torch.equal(*probes)
    weights = [next(setup.model().parameters()) for setup in (first, second)]
    assert not torch.equal(*weights)
    assert not torch.equal(first.batches(1), second.batches(1))


def test_the_summary_holds_both_estimates_the_gap_and_the_bound(
    corners: str, data: DataSet, tmp_path: Path
) -> None:
    settings = some_settings(corners, mode="theorem", lr=0.5, constant_points=4)
    results = run_study(some_study(tmp_path, corners, settings=settings), data)
    rows = summarize(settings, results, data.train)
    assert [row.algorithm for row in rows] == ["vanilla-2", "fast", "free-3"]
    for row in rows:
        own = [result for result in results if result.algorithm == row.algorithm]
        assert row.distance.value == pytest.approx(np.mean([r.distances[-1].d_w for r in own]))
        assert row.mean_largest.value >= row.uniform_stability.value
        assert 0 <= row.robust_test.value <= 1
        constants = constants_of(own)
        assert constants.beta == max(r.constants.beta for r in own)
        assert row.bound.sharpest <= row.bound.bound * (1 + 1e-9)
        updates, limits = applicable_bound(settings, row.algorithm, 20, constants).curve()
        assert (updates[0], updates[-1], limits[0]) == (0, 12, 0.0)


def test_settings_without_a_theorem_have_no_bound(corners: str, data: DataSet, tmp_path: Path) -> None:
    for settings in (
        some_settings(corners, constant_points=2),
        some_settings(corners, mode="theorem", norm="linf", eps=0.1, constant_points=2),
        some_settings(corners, mode="theorem", constant_points=2, algorithm_args={"carry": True}),
    ):
        name = "free-3" if settings.algorithm_args else "fast"
        result = twins_of(settings, data, name)
        assert all(row.bound is None for row in summarize(settings, [result], data.train))


def test_chance_is_the_share_of_the_largest_class_of_the_evaluated_images(
    corners: str, data: DataSet
) -> None:
    """Most images are of class 1, and always answering it is no training."""
    settings = some_settings(corners)
    y = torch.where(torch.arange(len(data.train)) % 10 == 0, 0, 1)
    imbalanced = Images(x=data.train.x, y=y, index=data.train.index)
    share = float((settings.evaluated(settings.sample(imbalanced, 20)).y == 1).double().mean())
    result = twins_of(settings, data, "fast")
    last = replace(result.probes[-1], robust_train=(share,) * len(result.probes[-1].robust_train))
    (row,) = summarize(settings, [replace(result, probes=(last,))], imbalanced)
    assert row.chance == share > 0.5
    assert not row.trained


def made_result(
    algorithm: str, seed: int, *, accuracy: float = 0.9, distance: float = 3.0, risk_test: float = 0.4
) -> TwinResult:
    """A result with one probe and one neighbour, at the end of 10 updates."""
    return TwinResult(
        algorithm=algorithm,
        n=20,
        seed=seed,
        engine="stacked",
        seconds=1.0,
        replaced=(0,),
        t0=(1,),
        distances=(Distances(update=10, d_w=(distance,), d_delta=(0.0,)),),
        probes=(
            ProbeRecord(
                update=10,
                largest_difference=0.2,
                mean_difference=0.15,
                robust_train=(accuracy, accuracy),
                robust_test=(0.3, 0.3),
                risk_train=(0.1, 0.1),
                risk_test=(risk_test, risk_test),
            ),
        ),
        differences=((0.1, -0.2),),
    )


def test_parts_and_free_are_compared_with_the_same_without_and_vanilla_by_seed(
    corners: str, data: DataSet
) -> None:
    shift = (0.0, 1.0, 5.0)
    results = [
        made_result(name, seed, distance=distance + shift[seed], risk_test=risk + shift[seed] / 100)
        for name, distance, risk in (("vanilla-2", 3, 0.4), ("free-3", 5, 0.3), ("free-3+ema", 2, 0.25))
        for seed in range(3)
    ]
    results.append(made_result("free-3+ema", 3, distance=99))
    results[-1] = replace(results[-1], diverged=4)
    results[3] = replace(results[3], distances=(Distances(update=10, d_w=(5.3,), d_delta=(0.0,)),))
    rows = summarize(some_settings(corners), results, data.train)
    first, second = differences(some_settings(corners), results, rows)
    assert [(one.algorithm, one.reference, one.seeds) for one in (first, second)] == [
        ("free-3", "vanilla-2", 3),
        ("free-3+ema", "free-3", 3),
    ]
    assert first.distance.value == pytest.approx(2.1)
    assert 0 < first.distance.low < 2 < first.distance.high, "the seeds' common differences cancel"
    assert second.distance.value == pytest.approx(-3.1)
    assert second.distance.excludes_zero
    assert first.risk_gap.value == pytest.approx(-0.1)
    assert first.distance_at_equal_accuracy.value == pytest.approx(2.1)
    text = " ".join(study_lines(rows, (), (first, second)))
    assert "paired differences" in text
    assert "-3.1 [-3.53, -2.67]" in text


def test_an_algorithm_at_chance_has_no_difference_at_equal_accuracy(corners: str, data: DataSet) -> None:
    results = [
        made_result(name, seed, accuracy=accuracy, distance=seed + accuracy)
        for name, accuracy in (("vanilla-2", 0.34), ("free-3", 0.9), ("trades-2", 0.9))
        for seed in range(2)
    ]
    (found,) = differences(
        some_settings(corners), results, summarize(some_settings(corners), results, data.train)
    )
    assert (found.algorithm, found.reference) == ("free-3", "vanilla-2")
    assert found.distance_at_equal_accuracy is None


def test_distances_at_equal_accuracy_are_not_read_on_fast_weights(corners: str, data: DataSet) -> None:
    """Slow weights begin at update 6 of 12, where the fast ones have long reached the common accuracy of 0.6."""
    settings = some_settings(corners, updates=12, proximal_every=0.1)

    def result(name: str, late: float) -> TwinResult:
        made = made_result(name, 0)
        probes = [(4, 0.9), (8, late), (12, 0.9)]
        distances = [(4, 1.0), (8, 2.0), (12, 4.0)]
        return replace(
            made,
            probes=tuple(replace(made.probes[0], update=t, robust_train=(a, a)) for t, a in probes),
            distances=tuple(Distances(update=t, d_w=(d,), d_delta=(0.0,)) for t, d in distances),
        )

    plain = made_result("fast", 0, accuracy=0.6)
    for late, expected in ((0.5, 2.5), (0.7, None)):
        results = [plain, result("fast+swa", late), result("vanilla-2", late)]
        rows = {row.algorithm: row for row in summarize(settings, results, data.train)}
        equal = rows["fast+swa"].at_equal_accuracy
        assert (None if equal is None else equal.distance.value) == (expected and pytest.approx(expected))
        assert rows["vanilla-2"].at_equal_accuracy.distance.value < 1
        notes = " ".join(study_lines(tuple(rows.values()), ()))
        assert ("slow weights begin above it" in notes) == (expected is None)


def test_algorithm_at_chance_has_no_distance_at_equal_accuracy(corners: str, data: DataSet) -> None:
    results = [
        made_result(name, seed, accuracy=accuracy)
        for name, accuracy in (("fast", 0.34), ("free-3", 0.9), ("vanilla-2", 0.6))
        for seed in range(2)
    ]
    by_name = {row.algorithm: row for row in summarize(some_settings(corners), results, data.train)}
    assert by_name["fast"].trained is False
    assert by_name["fast"].at_equal_accuracy is None
    assert by_name["vanilla-2"].at_equal_accuracy.distance.value == pytest.approx(3.0)
    # linear from (0, 0): accuracy 0.6 of 0.9 after 6.67 of 10 updates, where the distance is 2
    assert by_name["free-3"].at_equal_accuracy.distance.value == pytest.approx(2.0)
    assert by_name["free-3"].uniform_stability.value == pytest.approx(0.2)
    assert by_name["free-3"].risk_gap.value == pytest.approx(0.3)


def test_exponents_in_n_are_fitted_with_intervals() -> None:
    sizes = np.array([100.0, 200.0, 400.0])
    rng = np.random.default_rng(0)
    values = 5 * sizes**-0.8 * np.exp(0.1 * rng.standard_normal((20, 3)))
    found = fitted_exponent(sizes, values)
    assert found.value == pytest.approx(0.8, abs=0.1)
    assert found.low < 0.8 < found.high
    assert fitted_exponent(sizes, -values) is None
    assert fitted_exponent(sizes, values[:1]).low is None
    sinking = np.array([[0.1, 0.02], [0.1, 0.01], [0.1, -0.005], [0.1, -0.01]])
    found = fitted_exponent(sizes[:2], sinking)
    assert (found.low, found.high) == (None, None), "some resampled means have no logarithm"


def test_exponents_are_fitted_for_every_algorithm_with_its_prediction(
    corners: str, data: DataSet, tmp_path: Path
) -> None:
    settings = some_settings(corners, mode="theorem", lr=0.5, updates=6, constant_points=2)
    study = some_study(
        tmp_path, corners, settings=settings, sizes=(10, 20), algorithms=("vanilla-2", "fast", "erm")
    )
    results = run_study(study, data)
    rows = summarize(settings, results, data.train)
    fits = exponents(results, rows)
    assert [fit.algorithm for fit in fits] == ["vanilla-2", "fast", "erm"]
    assert fits[1].predicted == 1.0
    assert fits[2].predicted == 1.0, "without an adversary Theorem 2 is a multiple of 1/n"
    assert 0 < fits[0].predicted < 1
    assert len(fits[0].distance.means) == 2
    assert exponents(results[:1], rows) == ()


def test_bad_settings_are_refused(corners: str, data: DataSet, tmp_path: Path) -> None:
    for changes, match in (
        ({"mode": "theory"}, "did you mean 'theorem'"),
        ({"lr": 0.0}, "must be positive"),
        ({"updates": 0}, "--updates 0 must be at least 1"),
        ({"probes": 0}, "at least 1"),
        ({"norm": "l3"}, "unknown norm"),
        ({"replay": 0}, "--replay 0 must be at least 1"),
        ({"replay": 2, "mode": "theorem"}, "the theorems draw every batch anew"),
    ):
        with pytest.raises(InputError, match=match):
            some_settings(corners, **changes)
    with pytest.raises(InputError, match="at least one of each"):
        some_study(Path("nowhere"), corners, algorithms=())
    for changes, match in (
        ({"settings": some_settings(corners, batch_size=21)}, "exceeds the 20 examples"),
        ({"settings": some_settings(corners, algorithm_args={"tua": 2})}, "no algorithm of .* takes it"),
    ):
        with pytest.raises(InputError, match=match):
            some_study(tmp_path / "study", corners, **changes).prepare(data)
    assert not (tmp_path / "study").exists()
    assert split_commas("vanilla-10, fast") == ["vanilla-10", "fast"]
    assert parse_sizes("250,125, 500") == (125, 250, 500)
    with pytest.raises(InputError, match="whole numbers"):
        parse_sizes("many")


def test_an_algorithm_by_its_import_path_can_be_studied(
    corners: str, data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = tmp_path / "twin_algorithms.py"
    code.write_text(MINE)
    options = RunOptions(folder=tmp_path / "study", device="cpu", trust_code=True)
    settings = some_settings(corners, algorithm_args={"scale": 2}, constant_points=2)
    values = {"algorithms": ("twin_algorithms:Mine", "fast"), "options": options, "settings": settings}
    study = some_study(tmp_path / "study", corners, **values)
    results = run_study(study, data)
    assert [result.algorithm for result in results[:2]] == ["twin_algorithms:Mine", "fast"]
    assert all(row.bound is None for row in summarize(settings, results, data.train))
    code.write_text(MINE + "\n# changed\n")
    with pytest.raises(InputError, match="other code of twin_algorithms:Mine"):
        study.prepare(data)
    untrusted = replace(options, folder=tmp_path / "other", trust_code=False)
    with pytest.raises(InputError, match="trust"):
        some_study(tmp_path, corners, **{**values, "options": untrusted}).prepare(data)
    own_loss = {
        "algorithms": ("twin_algorithms:OwnLoss",),
        "options": replace(options, folder=tmp_path / "other"),
    }
    theorem = some_settings(corners, mode="theorem")
    with pytest.raises(InputError, match="has a loss of its own"):
        some_study(tmp_path, corners, **own_loss, settings=theorem).prepare(data)
    (result, *_) = run_study(some_study(tmp_path, corners, **own_loss), data)
    assert result.constants is None


def test_options_reach_the_algorithms_that_declare_them(corners: str) -> None:
    settings = some_settings(corners, algorithm_args={"carry": True})
    assert settings.algorithm(settings.spec("free-3", n=20, seed=0)).carry is True  # type: ignore[attr-defined]
    assert settings.spec("fast", n=20, seed=0).algorithm_args is None


def test_recording_times_are_evenly_spread_and_include_the_last() -> None:
    assert spread(4, 12) == {3, 6, 9, 12}
    assert spread(40, 3) == {1, 2, 3}
