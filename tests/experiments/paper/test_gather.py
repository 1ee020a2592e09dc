"""Gathering from a store: the right runs in the right rows and series, and nothing invented."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from freeat.evaluation.evaluator import RobustRight
from freeat.experiments.paper.catalogue import Experiment, RunGroup
from freeat.experiments.paper.gather import gather
from freeat.experiments.tasks import Measurement, Store, TrainTask
from freeat.files.documents import plain, to_json
from freeat.training.records import NormCounts, Record
from invented_runs import TOTAL, describe, finish, finish_measurement, record, training
from made_records import make_classes, make_provenance, make_result


def store_of(run: TrainTask) -> Store:
    return Store(path=run.options.folder.parents[1])


def group(label: str, runs: list[TrainTask], **more: Any) -> RunGroup:
    return RunGroup(data="cifar10", norm="l2", label=label, runs=tuple(runs), **more)


def document(kind: Any, name: str, *groups: RunGroup) -> dict[str, Any]:
    return gathered([Experiment(name=name, title="a title", kind=kind, groups=groups)])


def gathered(experiments: list[Experiment]) -> dict[str, Any]:
    """The document as it is stored."""
    stored: dict[str, Any] = json.loads(
        to_json(plain(gather(experiments, scale="hour", provenance=make_provenance())))
    )
    return stored


def only_series(made: dict[str, Any]) -> dict[str, Any]:
    ((series,),) = ([panel["series"] for panel in figure["panels"]] for figure in made["figures"])
    (one,) = series
    return dict(one)


def means(series: dict[str, Any]) -> list[float]:
    return [point["mean"] for point in series["points"]]


def test_a_row_is_the_mean_over_the_seeds_that_are_finished(tmp_path: Path) -> None:
    runs = [training(tmp_path, "vanilla-10", seed) for seed in range(3)]
    finish(runs[0], record(0.9, 0.3, plain=0.95))
    finish(runs[2], record(0.8, 0.2, plain=0.85))
    made = document("table", "table-1", group("vanilla-10", runs))
    (row,) = made["tables"][0]["rows"]
    assert row["measured"]["robust_train"]["mean"] == pytest.approx(0.85)
    tested = row["measured"]["robust_test"]
    assert tested["mean"] == pytest.approx(0.25)
    assert tested["std"] == pytest.approx(0.1 / 2**0.5)
    assert tested["image_error"] == pytest.approx(0.0136, rel=1e-2)
    assert (tested["seeds"], tested["values"], tested["of_seeds"]) == (2, [0.3, 0.2], [0, 2])
    assert row["measured"]["robust_gap"]["mean"] == pytest.approx(0.6)
    assert row["measured"]["robust_train"]["image_error"] == 0  # all training images were seen
    assert row["plain"]["robust_gap"]["mean"] == pytest.approx(0.65)
    assert row["plain"]["robust_test"] == row["measured"]["robust_test"]
    assert row["published"]["robust_gap"] == {"value": 34.4, "std": None, "recomputed": None}
    assert row["above_chance"]
    assert made["runs"][runs[1].key]["seconds"] is None
    assert made["training_seconds"] == 24.0


def test_a_row_without_a_finished_run_is_null(tmp_path: Path) -> None:
    made = document("table", "table-2", group("friendly-10", [training(tmp_path, "friendly-10")]))
    (row,) = made["tables"][0]["rows"]
    assert row["measured"] is None
    assert row["plain"] is None
    assert row["above_chance"] is None
    assert row["published"] is not None


def test_clean_columns_where_the_table_has_them(tmp_path: Path) -> None:
    runs = [training(tmp_path, "erm")]
    finish(runs[0], record(0.0, 0.0))
    (row,) = document("table", "table-5", group("erm", runs))["tables"][0]["rows"]
    assert row["measured"]["clean_gap"]["mean"] == pytest.approx(0.13)
    assert row["plain"]["clean_gap"]["mean"] == pytest.approx(0.15)
    assert row["published"] is None
    assert row["above_chance"], "a model trained without an adversary needs clean accuracy only"


def test_a_model_at_chance_is_marked(tmp_path: Path) -> None:
    runs = [training(tmp_path, "free-4", seed) for seed in (0, 1)]
    finish(runs[0], record(0.5, 0.3))
    finish(runs[1], record(0.11, 0.1, collapsed=True))
    (row,) = document("table", "table-1", group("free-4", runs))["tables"][0]["rows"]
    assert row["above_chance"] is False
    assert row["collapsed"] == 1


@pytest.mark.parametrize(("largest", "above"), [(790, False), (770, True)])
def test_chance_is_the_share_of_the_largest_class_of_each_split(
    tmp_path: Path, largest: int, above: bool
) -> None:
    run, seen = training(tmp_path, "free-4"), record(0.9, 0.0)
    finish(run, replace(seen, test=replace(seen.test, per_class=make_classes(largest, 1000 - largest))))
    (row,) = document("table", "table-4", group("free-4", [run]))["tables"][0]["rows"]
    assert row["above_chance"] is above, "800 of 1000 test images are right"


def test_constant_answers_are_counted_in_tables_and_figures(tmp_path: Path) -> None:
    runs = [training(tmp_path, "free-4", seed) for seed in (0, 1)]
    seen = record(0.19, 0.19)
    parts = {name: replace(getattr(seen, name), constant_answer=1) for name in ("train", "test")}
    finish(runs[0], replace(seen, **parts))
    finish(runs[1], record(0.5, 0.3))
    (row,) = document("table", "table-4", group("free-4", runs))["tables"][0]["rows"]
    assert (row["above_chance"], row["constant_answers"], row["seeds"]) == (False, 1, 2)
    series = only_series(document("curves", "figure-1", group("free-4", runs)))
    assert (series["above_chance"], series["constant_answers"], series["models"]) == (False, 1, 2)


def test_an_early_row_is_read_from_the_history(tmp_path: Path) -> None:
    runs = [training(tmp_path, "free-4")]
    early = [record(0.3, 0.28, update=update) for update in (50, 102, 200)]
    early[1] = replace(early[1], test=replace(early[1].test, robust_accuracy=0.25))
    finish(runs[0], record(0.5, 0.3), early)
    (row,) = document("table", "table-6", group("free-4", runs, at=0.25))["tables"][0]["rows"]
    assert row["measured"]["robust_gap"]["mean"] == pytest.approx(0.05)
    (none,) = document("table", "table-6", group("free-4", runs, at=0.35))["tables"][0]["rows"]
    assert none["measured"] is None


def test_curves_are_errors_at_the_points_all_seeds_have(tmp_path: Path) -> None:
    runs = [training(tmp_path, "fast", seed) for seed in (0, 1)]
    finish(runs[0], record(0.8, 0.2), [record(0.4, 0.3, update=100), record(0.6, 0.25, update=200)])
    finish(
        runs[1],
        record(0.05, 0.05, collapsed=True),
        [record(0.5, 0.3, update=100), record(0.5, 0.25, update=200)],
    )
    series = only_series(document("curves", "figure-11", group("fast-7/255", runs)))
    assert series["updates"] == [100, 200, TOTAL]
    assert series["epochs"] == [50, 100, TOTAL / 2]
    assert series["train"] == pytest.approx([0.55, 0.45, 0.575])
    assert means(series) == pytest.approx([0.15, 0.3, 0.3])
    assert series["points"][0]["values"] == pytest.approx([0.1, 0.2])
    assert series["fits"][0]["values"] == pytest.approx([0.4, 0.5])
    assert [point["seeds"] for point in series["points"]] == [2, 2, 2]
    assert series["collapse"] == [
        {"left": pytest.approx(1.0), "seen": False, "learnt": True},
        {"left": pytest.approx(0.1), "seen": True, "learnt": True},
    ]
    assert all(point["low"] < point["mean"] < point["high"] for point in series["points"])


def test_overfitting_is_chosen_on_one_half_of_the_test_images_and_evaluated_on_the_other(
    tmp_path: Path,
) -> None:
    def some(update: int, right: int) -> Record:
        found = record(0.8, 0.3, update=update)
        rows = torch.arange(found.test.n)
        by_chance = (rows % 2 == update // 100 % 2) & (
            rows < 100
        )  # right by chance on the one half or the other
        return replace(
            found, robust_right=RobustRight.of(rows < 1, (rows >= 100) & (rows < 100 + right) | by_chance)
        )

    run = training(tmp_path, "fast", 0)
    finish(run, some(TOTAL, 200), [some(100, 400), some(200, 400)])
    series = only_series(document("curves", "figure-1", group("fast", [run])))
    n = run.result().test.n
    assert series["overfitting"]["values"] == pytest.approx([(200 - 50) / n])
    assert series["overfitting"]["of_seeds"] == [0]


def test_square_accuracies_are_averaged_over_seeds_at_each_radius(tmp_path: Path) -> None:
    runs = [training(tmp_path, "free-4", seed) for seed in range(3)]
    attacks = [attacking(run, (0.5, 0.25), n=500) for run in runs]
    for run in runs:
        finish(run, record(0.5, 0.3))
    for attack, accuracy in zip(attacks[:2], (0.3, 0.4), strict=True):
        finish_measurement(
            attack, {(attack.target.key, 0.5): accuracy, (attack.target.key, 0.25): accuracy + 0.2}
        )
    series = only_series(document("radius", "figure-2", group("free-4", runs, measurements=tuple(attacks))))
    assert series["eps"] == [0.25, 0.5]
    assert means(series) == pytest.approx([0.55, 0.35])
    assert (series["n"], series["points"][0]["seeds"], series["attack"]) == (500, 2, "square-20")
    assert series["points"][0]["of_seeds"] == [0, 1]


def attacking(run: TrainTask, radii: tuple[float, ...], n: int) -> Measurement:
    return Measurement(
        name="a", store=store_of(run), targets=(run,), attack="square-20", norm="l2", radii=radii, n=n
    )


def transferring(source: TrainTask, *targets: TrainTask) -> Measurement:
    return Measurement(
        name="t",
        store=store_of(source),
        source=source,
        targets=targets,
        attack="pgd-10",
        norm="l2",
        radii=(0.5,),
        n=500,
    )


def test_transferred_attacks_have_a_panel_for_each_source(tmp_path: Path) -> None:
    """A measurement holds all targets; each group takes its own."""
    free, fast = training(tmp_path, "free-4"), training(tmp_path, "fast")
    sources = [training(tmp_path, "vanilla-10", 1), training(tmp_path, "free-4", 1)]
    for run in (free, fast, *sources):
        finish(run, record(0.5, 0.3))
    tasks = tuple(transferring(source, free, fast) for source in sources)
    for task, accuracy in zip(tasks, (0.6, 0.5), strict=True):
        finish_measurement(task, {(free.key, 0.5): accuracy, (fast.key, 0.5): accuracy - 0.1})
    groups = (
        group("free-4", [free], measurements=tasks),
        group("fast", [fast], measurements=tasks),
    )
    panels = document("radius", "figure-3", *groups)["figures"][0]["panels"]
    seen = {p["panel"]: {s["label"]: means(s) for s in p["series"]} for p in panels}
    assert seen == {
        "from vanilla-10": {"free-4": [0.6], "fast": [0.5]},
        "from free-4": {"free-4": [0.5], "fast": [0.4]},
    }


def test_standard_targets_have_a_panel_for_each_network(tmp_path: Path) -> None:
    source = training(tmp_path, "free-4", 2)
    targets = [training(tmp_path, "erm", model=model) for model in ("resnet18", "resnet50")]
    for run in (source, *targets):
        finish(run, record(0.5, 0.3))
    task = transferring(source, *targets)
    finish_measurement(task, {(targets[0].key, 0.5): 0.7, (targets[1].key, 0.5): 0.8})
    groups = [
        group("free-4", [source], measurements=(task,), panel=target.spec.model, targets=(target,))
        for target in targets
    ]
    panels = document("radius", "figure-9", *groups)["figures"][0]["panels"]
    assert {p["panel"]: means(p["series"][0]) for p in panels} == {"resnet18": [0.7], "resnet50": [0.8]}
    assert panels[0]["series"][0]["points"][0]["of_seeds"] == [2], "the seed of the model that was attacked"


def test_what_was_not_measured_is_absent(tmp_path: Path) -> None:
    run = training(tmp_path, "free-4")
    attack = attacking(run, (0.5,), n=5)
    for kind, where in (
        ("radius", "figure-2"),
        ("curves", "figure-1"),
        ("size", "figure-4"),
        ("norms", "figure-12"),
    ):
        made = document(kind, where, group("free-4", [run], measurements=(attack,), n=256))
        assert made["figures"][0]["panels"] == []


def test_gap_against_n_has_a_fitted_exponent(tmp_path: Path) -> None:
    groups = []
    for n in (1024, 256):
        run = training(tmp_path, "free-4", train_size=n)
        finish(run, record(0.2 + 0.1 * (1024 / n) ** 0.5, 0.2))
        groups.append(group("free-4", [run], n=n))
    series = only_series(document("size", "figure-4", *groups))
    assert series["n"] == [256, 1024]
    assert means(series) == pytest.approx([0.2, 0.1])
    assert series["exponent"]["value"] == pytest.approx(0.5)
    assert series["exponent"]["low"] < 0.5 < series["exponent"]["high"]


def norms(smallest: float, **bins: int) -> dict[str, Any]:
    return {"gradient_norms": NormCounts(smallest_so_far=smallest, bins={k[1:]: v for k, v in bins.items()})}


def test_gradient_norms_are_counted_over_the_seeds(tmp_path: Path) -> None:
    runs = [training(tmp_path, "free-4", seed) for seed in (0, 1)]
    finish(runs[0], record(0.5, 0.3, **norms(0.1, b0=5)), [record(0.3, 0.3, update=100, **norms(0.5, b2=3))])
    finish(runs[1], record(0.5, 0.3, **norms(0.3, b0=1)), [record(0.3, 0.3, update=100, **norms(0.4, b0=2))])
    series = only_series(document("norms", "figure-12", group("free-4", runs)))
    assert series["bins"] == pytest.approx([0, 0.1, 0.2, 0.3])
    assert series["counts"] == [[2, 0, 3], [6, 0, 0]]
    assert series["smallest"] == [0.4, 0.1]
    assert series["smallest_of_seeds"] == [0.1, 0.3]


def test_a_run_that_never_learnt_has_not_collapsed(tmp_path: Path) -> None:
    run = training(tmp_path, "fast")
    finish(run, record(0.0, 0.0))
    series = only_series(document("curves", "figure-11", group("fast-7/255", [run])))
    assert series["collapse"] == [{"left": 1.0, "seen": False, "learnt": False}]
    assert all(math.isfinite(point["low"]) for point in series["points"])


def test_free_may_be_read_up_to_m_updates_late(tmp_path: Path) -> None:
    runs = {name: training(tmp_path, name, updates=40) for name in ("free-8", "vanilla-10")}
    for run in runs.values():
        finish(run, record(0.5, 0.3, update=40), [record(0.4, 0.3, update=16)])
    for name, expected in (("free-8", 0.1), ("vanilla-10", None)):
        (row,) = document("table", "table-6", group(name, [runs[name]], at=0.25))["tables"][0]["rows"]
        assert (row["measured"] and row["measured"]["robust_gap"]["mean"]) == pytest.approx(expected)


def test_sizes_with_unequal_numbers_of_seeds_are_decided_by_the_fewest(tmp_path: Path) -> None:
    groups = []
    for label, shift in (("free-4", 0.0), ("vanilla-10", 0.3)):
        for n, seeds in ((256, 3), (1024, 1)):
            runs = [training(tmp_path, label, seed, train_size=n) for seed in range(seeds)]
            for seed, run in enumerate(runs):
                finish(run, record(0.6 + 0.01 * seed - n / 4096 + shift, 0.05))
            groups.append(group(label, runs, n=n))
    made = document("size", "figure-4", *groups)
    for series in made["figures"][0]["panels"][0]["series"]:
        assert [point["seeds"] for point in series["points"]] == [3, 1]
    claim = next(claim for claim in made["claims"] if claim["id"] == "gap-falls-faster-in-n")
    (found,) = claim["measured"]
    assert found["verdict"] == "undecided"
    assert found["detail"].startswith("one seed")
    assert found["low"] < found["statistic"] < found["high"]


def test_every_run_and_measurement_has_its_provenance(tmp_path: Path) -> None:
    """The machine and commit that gather need not be those that trained."""
    runs = [training(tmp_path, "free-4", seed) for seed in range(3)]
    for run, commit in zip(runs[:2], ("abc", "def"), strict=True):
        finish(run, record(0.5, 0.3))
        describe(run, commit=commit)
    attack = attacking(runs[0], (0.5,), n=500)
    made_by = make_provenance(commit="ghi", processor="two")
    finish_measurement(attack, {(runs[0].key, 0.5): 0.3}, provenance=made_by)
    made = document("radius", "figure-2", group("free-4", runs, measurements=(attack,)))
    first, second, missing = (made["runs"][run.key] for run in runs)
    assert first["chosen"]["precision"] == "fp32"
    assert first["data"] == {"name": "cifar10", "digest": "d" * 64}
    assert (first["provenance"]["commit"], second["provenance"]["commit"]) == ("abc", "def")
    assert missing["provenance"] is None
    assert first["provenance"]["versions"] == {"freeat": "0.1.0"}
    measured = made["measurements"][attack.key]
    assert (measured["name"], measured["provenance"]["commit"]) == ("a", "ghi")
    assert measured["provenance"]["machine"]["processor"] == "two"
    assert made["commits"] == ["abc", "def", "ghi"]
    assert [machine["processor"] for machine in made["machines"]] == ["one", "two"]


def test_notes_of_runs_are_notes_of_their_tables(tmp_path: Path) -> None:
    runs = [training(tmp_path, name) for name in ("free-4", "fast")]
    finish(runs[0], record(0.5, 0.3), notes=("cifar10 is represented by the file cifar10.npz",))
    finish(runs[1], record(0.5, 0.3), notes=("the step is long",))
    rows = [group(run.spec.algorithm, [run]) for run in runs]
    experiments = [
        Experiment(name=name, title="a title", kind="table", groups=tuple(groups))
        for name, groups in (("table-1", rows), ("table-2", rows[:1]))
    ]
    made = gathered(experiments)
    substitute, step = made["notes"]
    assert [table["notes"] for table in made["tables"]] == [[substitute, step], [substitute]]
    assert made["runs"][runs[0].key]["notes"] == [substitute]


def test_series_of_models_at_chance_are_marked(tmp_path: Path) -> None:
    learnt, lost = training(tmp_path, "free-4"), training(tmp_path, "vanilla-10")
    standard = training(tmp_path, "erm")
    norms_seen = norms(0.1, b0=5)
    for run, robust in ((learnt, 0.5), (lost, 0.1), (standard, 0.0)):
        finish(run, record(robust, robust, **norms_seen))
    for kind, where in (("curves", "figure-1"), ("size", "figure-4"), ("norms", "figure-12")):
        for run, expected in ((learnt, True), (lost, False), (standard, True)):
            series = only_series(document(kind, where, group(run.spec.algorithm, [run], n=256)))
            assert series["above_chance"] is expected, (kind, run.name)
    for source, target, expected in (
        (learnt, standard, True), (lost, standard, False), (standard, lost, False)
    ):  # fmt: skip
        task = transferring(source, target, learnt)
        finish_measurement(task, {(target.key, 0.5): 0.5, (learnt.key, 0.5): 0.5})
        one = group("free-4", [source], measurements=(task,), targets=(target,))
        assert only_series(document("radius", "figure-9", one))["above_chance"] is expected


def test_what_was_measured_on_other_weights_does_not_count(tmp_path: Path) -> None:
    run = training(tmp_path, "free-4")
    attack = attacking(run, (0.5,), n=5)
    finish(run, record(0.5, 0.3), weights="old")
    finish_measurement(attack, {(run.key, 0.5): 0.3}, weights={run.key: "old"})
    assert attack.result() is not None
    run.folder.publish_result(make_result(record(0.5, 0.3), weights="new"))
    assert attack.result() is None
    (run.folder.path / "result.json").unlink()
    assert attack.result() is None, "without its run a measurement does not count"


def test_identities_do_not_depend_on_where_the_store_lies(tmp_path: Path) -> None:
    """Data inside the store are named relative to it."""
    stores = [(tmp_path / name).resolve() for name in ("here", "there")]
    runs = [training(store, "free-4", data=str(store / "data" / "cifar10.npz")) for store in stores]
    assert runs[0].key == runs[1].key != training(stores[0], "free-4").key
    attacks = [attacking(run, (0.5,), n=5) for run in runs]
    assert attacks[0].key == attacks[1].key


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("result.json", '{"format": 1, "tra'),
        ("result.json", '{"format": 1}'),
        ("history.jsonl", '{"kind": "evaluation", "upd\n'),
        ("history.jsonl", "3\n"),
        ("run.json", '{"format": 1, "identity": "a", "spec": {}, "evaluation": {}}'),
    ],
)
def test_damaged_files_leave_other_runs_readable(tmp_path: Path, name: str, text: str) -> None:
    runs = [training(tmp_path, "free-4", seed) for seed in (0, 1)]
    for run in runs:
        finish(run, record(0.5, 0.3))
        describe(run)
    (runs[0].folder.path / name).write_text(text, encoding="utf-8")
    assert runs[1].damage() is None
    damage = runs[0].damage()
    assert damage is not None
    assert name in damage
    assert f"delete {runs[0].folder.path} to have it made again" in damage
    for kind, where in (("table", "table-1"), ("curves", "figure-1")):
        made = document(kind, where, group("free-4", runs))
        assert made["runs"][runs[0].key]["seconds"] is None
        assert made["runs"][runs[1].key]["seconds"] == 12.0
    (row,) = document("table", "table-1", group("free-4", runs))["tables"][0]["rows"]
    assert row["seeds"] == 1


def test_a_damaged_measurement_leaves_others_readable(tmp_path: Path) -> None:
    runs = [training(tmp_path, "free-4", seed) for seed in (0, 1)]
    attacks = [attacking(run, (0.5,), n=500) for run in runs]
    for run, attack in zip(runs, attacks, strict=True):
        finish(run, record(0.5, 0.3))
        finish_measurement(attack, {(run.key, 0.5): 0.3})
    (tmp_path / "measurements" / attacks[0].key / "result.json").write_text('{"format": 1}', encoding="utf-8")
    assert "missing required field" in str(attacks[0].damage())
    made = document("radius", "figure-2", group("free-4", runs, measurements=tuple(attacks)))
    assert [point["seeds"] for point in only_series(made)["points"]] == [1]
    assert list(made["measurements"]) == [attacks[1].key]
