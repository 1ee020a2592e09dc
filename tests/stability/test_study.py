"""Studies: cells that are stored and resumed, and what they say together."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from freeat.data import DataSet
from freeat.errors import InputError
from freeat.stability.cell import run_cell, spread
from freeat.stability.estimates import fitted_exponent
from freeat.stability.exponents import exponents
from freeat.stability.setting import Setting
from freeat.stability.study import Study, parse_algorithms, parse_sizes
from freeat.stability.summary import bound_curve, constants_of, summarize
from samples import some_images

CPU = torch.device("cpu")


def some_data() -> DataSet:
    return DataSet(
        name="corners", train=some_images(60), test=some_images(30, seed=5), classes=("a", "b", "c")
    )


def some_setting(**changes: object) -> Setting:
    values = {
        "model": "mlp-w8-softplus",
        "n": 20,
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
    return Setting(**{**values, **changes})  # type: ignore[arg-type]


def some_study(folder: Path, **changes: object) -> Study:
    values = {
        "setting": some_setting(),
        "algorithms": ("vanilla-2", "fast", "free-3"),
        "seeds": 2,
        "sizes": (20,),
        "folder": folder,
        "engine": "separate",
    }
    return Study(**{**values, **changes})  # type: ignore[arg-type]


def test_a_cell_records_all_that_was_asked_for() -> None:
    setting = some_setting(mode="theorem", lr=0.5, constant_points=4)
    cell = run_cell(setting, some_data(), "free-3", 0, "stacked", device=CPU)
    assert [row["update"] for row in cell["distances"]] == [3, 6, 9, 12]
    assert [probe["update"] for probe in cell["probes"]] == [6, 12]
    assert np.array(cell["differences"]).shape == (3, 8 + 3 + 3)
    assert len(cell["t0"]) == 3
    for k, t0 in enumerate(cell["t0"]):
        for row in cell["distances"]:
            assert (row["d_w"][k] > 0) == (t0 is not None and row["update"] >= t0)
    assert cell["constants"]["gradients"] == 2 * 2 * 4 + 12 * 5
    assert cell["constants"]["beta"] > 0
    assert all(len(probe["robust_train"]) == 4 for probe in cell["probes"])
    json.dumps(cell)


def test_both_engines_give_the_same_cell() -> None:
    one, two = (
        run_cell(some_setting(), some_data(), "free-3", 1, engine, device=CPU)
        for engine in ("stacked", "separate")
    )
    assert one["t0"] == two["t0"]
    np.testing.assert_allclose(one["differences"], two["differences"], atol=2e-4)
    np.testing.assert_allclose(one["distances"][-1]["d_w"], two["distances"][-1]["d_w"], rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("mode", ["theorem", "ordinary"])
def test_every_algorithm_and_norm_can_be_studied(mode: str) -> None:
    for norm, eps in (("l2", 0.3), ("linf", 0.05)):
        for name in ("erm", "vanilla-2", "trades-2", "free-trades-2", "friendly-2"):
            setting = some_setting(mode=mode, norm=norm, eps=eps, updates=4, probe_times=1)
            assert run_cell(setting, some_data(), name, 0, "stacked", device=CPU)["distances"]


def test_a_study_is_resumed_cell_by_cell(tmp_path: Path) -> None:
    study, data = some_study(tmp_path), some_data()
    asked = iter([False] * 26 + [True])  # two cells of 12 batches, then a third is cut short
    begun = list(study.run(data, should_stop=lambda: next(asked)))
    assert len(begun) == 2
    path = tmp_path / "cells" / "vanilla-2-n20-seed0.json"
    before = path.read_bytes()
    cells = list(study.run(data))
    assert len(cells) == 6
    assert path.read_bytes() == before
    assert study.cells() == cells
    fresh = list(some_study(tmp_path / "again").run(data))
    for one, two in zip(cells, fresh, strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}


def test_seeds_that_diverged_are_left_out_and_told(tmp_path: Path) -> None:
    study, data = some_study(tmp_path, sizes=(15, 20)), some_data()
    cells = list(study.run(data))
    lost = [dict(cell) for cell in cells]
    for cell in lost:
        if cell["algorithm"] == "fast" or (cell["algorithm"] == "free-3" and cell["seed"] == 1):
            for key in set(cell) - {"algorithm", "n", "seed"}:
                del cell[key]
            cell["diverged"] = 7
    rows = {(row["algorithm"], row["n"]): row for row in summarize(study.setting, lost, 3)}
    whole = {(row["algorithm"], row["n"]): row for row in summarize(study.setting, cells, 3)}
    assert rows["vanilla-2", 20] == whole["vanilla-2", 20] | {
        "at_equal_accuracy": rows["vanilla-2", 20]["at_equal_accuracy"]
    }
    assert whole["fast", 20].keys() == rows["fast", 20].keys()
    assert rows["fast", 20]["distance"] is None
    assert (
        "2 of 2 seeds diverged, first seen at update 7: nothing could be measured"
        in rows["fast", 20]["reason"]
    )
    assert (rows["free-3", 20]["seeds"], rows["free-3", 20]["diverged"]) == (1, 1)
    assert "they are left out" in rows["free-3", 20]["reason"]
    assert [fit["algorithm"] for fit in exponents(lost, list(rows.values()))] == ["vanilla-2", "free-3"]


def test_a_folder_of_another_study_is_left_alone(tmp_path: Path) -> None:
    data = some_data()
    some_study(tmp_path / "one").prepare(data)
    with pytest.raises(InputError, match="another setting"):
        some_study(tmp_path / "one", setting=some_setting(updates=13)).prepare(data)
    some_study(tmp_path / "one", setting=some_setting(n=30), sizes=(20, 30), seeds=9).prepare(data)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="nothing was touched"):
        some_study(tmp_path / "two").prepare(data)


def test_the_engine_is_measured_once_and_stored(tmp_path: Path) -> None:
    study, data = some_study(tmp_path, algorithms=("fast",), engine=None), some_data()
    cells = list(study.run(data))
    stored = json.loads((tmp_path / "engines.json").read_text())
    assert stored["fast"]["engine"] == cells[0]["engine"] == cells[1]["engine"]
    other = {"stacked": "separate", "separate": "stacked"}[cells[0]["engine"]]
    stored["fast"]["engine"] = other
    (tmp_path / "engines.json").write_text(json.dumps(stored))
    (tmp_path / "cells" / "fast-n20-seed1.json").unlink()
    assert [cell["engine"] for cell in study.run(data)] == [cells[0]["engine"], other]


def test_the_summary_holds_both_estimates_the_gap_and_the_bound(tmp_path: Path) -> None:
    setting = some_setting(mode="theorem", lr=0.5, constant_points=4)
    study = some_study(tmp_path, setting=setting)
    cells = list(study.run(some_data()))
    rows = summarize(setting, cells, 3)
    assert [row["algorithm"] for row in rows] == ["vanilla-2", "fast", "free-3"]
    for row in rows:
        own = [cell for cell in cells if cell["algorithm"] == row["algorithm"]]
        assert row["distance"]["value"] == pytest.approx(np.mean([c["distances"][-1]["d_w"] for c in own]))
        assert row["mean_largest"]["value"] >= row["uniform_stability"]["value"]
        assert 0 <= row["robust_test"]["value"] <= 1
        constants = constants_of(own)
        assert constants is not None
        assert constants.beta == max(c["constants"]["beta"] for c in own)
        assert row["bound"]["sharpest"] <= row["bound"]["bound"] * (1 + 1e-9)
        updates, limits = bound_curve(setting, row["algorithm"], constants)
        assert (updates[0], updates[-1], limits[0]) == (0, 12, 0.0)


def test_settings_without_a_theorem_have_no_bound(tmp_path: Path) -> None:
    data = some_data()
    settings = (
        some_setting(constant_points=2),
        some_setting(mode="theorem", norm="linf", eps=0.1, constant_points=2),
    )
    for setting in settings:
        study = some_study(tmp_path / setting.norm, setting=setting, algorithms=("fast",))
        cells = list(study.run(data))
        assert all(row["bound"] is None for row in summarize(setting, cells, 3))


def test_an_algorithm_at_chance_is_not_compared() -> None:
    cells = []
    for name, accuracy in (("fast", 0.34), ("free-3", 0.9), ("vanilla-2", 0.6)):
        for seed in range(2):
            probe = {"robust_train": [accuracy] * 2, "robust_test": [0.3] * 2, "risk_train": [0.1] * 2}
            cells.append(
                {
                    "algorithm": name,
                    "n": 20,
                    "seed": seed,
                    "t0": [1],
                    "distances": [{"update": 10, "d_w": [3.0], "d_delta": [0.0]}],
                    "probes": [{"update": 10, **probe, "risk_test": [0.4] * 2}],
                    "differences": [[0.1, -0.2]],
                    "constants": None,
                    "seconds": 1.0,
                }
            )
    by_name = {row["algorithm"]: row for row in summarize(some_setting(), cells, 3)}
    assert by_name["fast"]["trained"] is False
    assert by_name["fast"]["at_equal_accuracy"] is None
    assert by_name["vanilla-2"]["at_equal_accuracy"]["distance"]["value"] == pytest.approx(3.0)
    # linear from (0, 0): accuracy 0.6 of 0.9 after 6.67 of 10 updates, where the distance is 2
    assert by_name["free-3"]["at_equal_accuracy"]["distance"]["value"] == pytest.approx(2.0)
    assert by_name["free-3"]["uniform_stability"]["value"] == pytest.approx(0.2)
    assert by_name["free-3"]["risk_gap"]["value"] == pytest.approx(0.3)


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


def test_a_sweep_fits_every_algorithm_beside_its_prediction(tmp_path: Path) -> None:
    setting = some_setting(mode="theorem", lr=0.5, updates=6, constant_points=2)
    study = some_study(tmp_path, setting=setting, sizes=(10, 20), algorithms=("vanilla-2", "fast", "erm"))
    cells = list(study.run(some_data()))
    rows = summarize(setting, cells, 3)
    fits = exponents(cells, rows)
    assert [fit["algorithm"] for fit in fits] == ["vanilla-2", "fast", "erm"]
    assert fits[1]["predicted"] == 1.0
    assert fits[2]["predicted"] == 1.0, "without an adversary Theorem 2 is a multiple of 1/n"
    assert 0 < fits[0]["predicted"] < 1
    assert len(fits[0]["distance"]["means"]) == 2
    assert exponents(cells[:1], rows) == []


def test_bad_settings_are_refused() -> None:
    for changes, match in (
        ({"mode": "theory"}, "did you mean 'theorem'"),
        ({"batch_size": 21}, "exceeds the 20 examples"),
        ({"lr": 0.0}, "must be positive"),
        ({"probes": 0}, "at least 1"),
    ):
        with pytest.raises(InputError, match=match):
            some_setting(**changes)
    with pytest.raises(InputError, match="at least one of each"):
        some_study(Path("nowhere"), algorithms=())
    assert parse_algorithms("vanilla-10, fast") == ("vanilla-10", "fast")
    assert parse_sizes(["250,125", "500"]) == (125, 250, 500)
    with pytest.raises(InputError, match="whole numbers"):
        parse_sizes(["many"])


def test_times_are_spread_and_end_at_the_end() -> None:
    assert spread(4, 12) == {3, 6, 9, 12}
    assert spread(40, 3) == {1, 2, 3}
