"""Every number and series of the paper has a run behind it, at every scale."""

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from freeat import Erm, Fast, Free, Friendly, Vanilla
from freeat.algorithms.step import Algorithm
from freeat.data.catalogue import SOURCES
from freeat.errors import InputError
from freeat.experiments.paper.catalogue import (
    EXPERIMENTS,
    Experiment,
    make_experiment,
    make_experiments,
    names_of,
)
from freeat.experiments.paper.published import PublishedTable, published_tables
from freeat.experiments.paper.settings import NIGHT, PAPER, SCALES, Scale, updates
from freeat.experiments.tasks import Store, TrainTask
from freeat.objectives import CrossEntropy, Objective, Trades
from freeat.runs.build import build_algorithm

STORE = Store(path=Path("store"), data_dir=Path("data"))
BOTH = ("l2", "linf")
TABLE_1 = ("vanilla-7", "vanilla-10", "fast", "free-2", "free-4", "free-6", "free-8", "free-10")
THREE = ("vanilla-10", "fast", "free-4")
SIZED = (*THREE, "free-6")
NETWORKS = {"cifar10": "resnet18", "cifar100": "resnet18", "tiny-imagenet": "resnet50", "svhn": "vgg19"}

SERIES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "figure-1": (("cifar10",), BOTH, ("",), THREE),
    "figure-2": (("cifar10",), BOTH, ("",), THREE),
    "figure-3": (("cifar10",), BOTH, ("",), THREE),
    "figure-4": (("cifar10",), BOTH, ("",), SIZED),
    "figure-5": (("cifar10", "cifar100"), BOTH, ("",), TABLE_1),
    "figure-6": (("cifar10", "cifar100", "tiny-imagenet"), BOTH, ("",), THREE),
    "figure-7": (("cifar10", "cifar100", "tiny-imagenet"), BOTH, ("",), THREE),
    "figure-9": (("cifar10",), BOTH, ("resnet18", "resnet50", "wrn34"), THREE),
    "figure-10": (("cifar10", "cifar100"), BOTH, ("",), SIZED),
    "figure-11": (("cifar10",), ("linf",), ("",), ("fast-7/255", "fast-10/255")),
    "figure-12": (("cifar10", "cifar100"), ("l2",), ("",), ("free-4", "free-6")),
}
"""Data sets, norms, panels and labels of the figures whose series are all combinations of them."""


def at(scale: Scale, name: str) -> Experiment:
    return make_experiment(name, scale, STORE)


def series(experiment: Experiment) -> set[tuple[str, str, str, str]]:
    return {(e.data, e.norm, e.panel, e.label) for e in experiment.groups}


@dataclass(frozen=True, kw_only=True)
class Adversary:
    """What a model is trained against, with radius and step in 255ths."""

    kind: type[Algorithm]
    eps: float
    step: float
    m: int = 1
    start: str
    objective: Objective = CrossEntropy()
    tau: int | None = None


def paper_adversary(data: str, norm: str, label: str) -> Adversary | None:
    """The adversary of the paper under that label (section 5, appendix B), or the same at ε/2; None for ERM."""
    eps = 128.0 if norm == "l2" else 4.0 if data == "tiny-imagenet" else 8.0
    if label.endswith("-half-eps"):
        eps, label = eps / 2, label.removesuffix("-half-eps")
    start = "radius" if norm == "l2" else "uniform"  # as the code behind the paper, as "gaussian" below
    found = re.fullmatch(r"([a-z-]+?)(?:-(\d+))?(?:/255|-2eps)?", label)
    assert found is not None, label
    family, number = found[1], int(found[2] or 0)
    match family:
        case "erm":
            return None
        case "vanilla":
            return Adversary(kind=Vanilla, m=number, eps=eps, step=eps / 4, start=start)
        case "free":
            return Adversary(kind=Free, m=number, eps=eps, step=eps, start=start)
        case "fast":
            usual = 64.0 if norm == "l2" else 7.0  # printed without exception
            return Adversary(kind=Fast, eps=eps, step=number or usual, start=start)
        case "friendly":
            wide = 2 * eps if label.endswith("-2eps") else eps
            return Adversary(kind=Friendly, m=number, eps=wide, step=eps / 4, start=start, tau=3)
        case "trades":
            objective = Trades(lam=1 / 6)
            return Adversary(
                kind=Vanilla, m=number, eps=eps, step=eps / 4, start="gaussian", objective=objective
            )
        case "free-trades":
            objective = Trades(lam=1 / 6)
            return Adversary(kind=Free, m=number, eps=eps, step=eps, start="gaussian", objective=objective)
    raise AssertionError(label)


def adversary(run: TrainTask) -> Adversary | None:
    """What a run trains against, from the algorithm that its spec becomes."""
    spec = run.spec
    assert spec.updates is not None
    algorithm = build_algorithm(spec, spec.updates)
    if isinstance(algorithm, Erm):
        return None
    assert isinstance(algorithm, Vanilla | Fast | Free | Friendly)
    return Adversary(
        kind=type(algorithm),
        eps=round(255 * algorithm.ball.eps, 9),
        step=round(255 * algorithm.step_size, 9),
        m=getattr(algorithm, "m", 1),
        start=algorithm.start,
        objective=algorithm.objective,
        tau=getattr(algorithm, "tau", None),
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_is_trained_and_evaluated_as_its_label_says(name: str) -> None:
    for group in at(PAPER, name).groups:
        n = None if group.n == SOURCES[group.data].n_train else group.n
        evaluated_at = 128 if group.norm == "l2" else 4 if group.data == "tiny-imagenet" else 8
        for run in group.runs:
            spec, evaluation = run.spec, run.evaluation
            assert (spec.data, spec.norm, spec.train_size) == (group.data, group.norm, n)
            assert spec.model == NETWORKS[group.data]
            assert adversary(run) == paper_adversary(group.data, group.norm, group.label), (name, group.label)
            assert (spec.box, spec.algorithm_args, spec.warmup) == (True, None, 0.0)
            assert (spec.optimizer, spec.lr, spec.momentum, spec.weight_decay) == ("sgd", 0.1, 0.9, 2e-4)
            assert (spec.schedule, spec.batch_size, spec.sampling) == ("piecewise", 128, "epochs")
            assert spec.updates == updates(PAPER, group.data)
            augment = "none" if group.data == "svhn" else "auto"
            assert (spec.validation, spec.augment, spec.normalize) == (0.0, augment, None)
            assert (spec.precision, spec.ema, spec.init_from) == ("fp32", None, None)
            assert (evaluation.attack, evaluation.iterate) == ("pgd-10", "last")
            expected = evaluated_at / 2 if group.label.endswith("-half-eps") else evaluated_at
            assert 255 * (evaluation.eval_eps or spec.eps) == pytest.approx(expected)
            assert evaluation.eval_alpha is None
            assert evaluation.eval_start == ("radius" if group.norm == "l2" else "uniform")
            assert evaluation.final_size is None


@pytest.mark.parametrize("table", published_tables().values(), ids=lambda table: table.name)
def test_every_published_row_has_the_papers_runs(table: PublishedTable) -> None:
    groups = {(e.data, e.norm, e.label): e for e in at(PAPER, table.name).groups}
    for row in table.rows:
        group = groups[row.data, row.norm, row.label]
        assert group.at == table.at
        assert len(group.runs) >= max(3, table.runs)
        assert [run.spec.seed for run in group.runs] == list(range(len(group.runs)))


@pytest.mark.parametrize("name", SERIES)
def test_every_series_of_a_figure_has_its_runs(name: str) -> None:
    data_sets, norms, panels, labels = SERIES[name]
    found = at(PAPER, name)
    assert series(found) == {(d, n, p, x) for d in data_sets for n in norms for p in panels for x in labels}
    assert all(group.runs for group in found.groups)


def test_figure_8_transfers_to_the_networks_of_its_data_sets() -> None:
    found = series(at(PAPER, "figure-8"))
    targets = {("cifar100", "resnet18"), ("tiny-imagenet", "resnet50")}
    assert found == {(d, n, p, x) for d, p in targets for n in BOTH for x in THREE}


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_scale_leaves_a_row_or_series_out_of_data_without_a_list(scale: Scale, name: str) -> None:
    def without_lists(found: Experiment) -> set[tuple[str, str, str, str]]:
        return {one for one in series(found) if one[0] not in scale.lists}

    assert without_lists(at(scale, name)) == without_lists(at(PAPER, name))


def test_the_table_of_radii_has_every_algorithm_at_both_with_the_same_seeds() -> None:
    groups = at(PAPER, "radii").groups
    for norm, label in product(BOTH, ("vanilla-10", "free-4")):
        whole, half = (
            next(g for g in groups if (g.norm, g.label) == (norm, wanted))
            for wanted in (label, f"{label}-half-eps")
        )
        assert [run.spec.seed for run in whole.runs] == [run.spec.seed for run in half.runs] == [0, 1, 2]
        assert {run.spec.eps for run in half.runs} == {run.spec.eps / 2 for run in whole.runs}
    assert {run.key for group in groups for run in group.runs if "half" not in group.label} <= {
        run.key for group in at(PAPER, "table-1").groups for run in group.runs
    }


def test_a_night_makes_its_list_of_cifar10() -> None:
    made = make_experiments(EXPERIMENTS, NIGHT, STORE, ["cifar10"])
    tasks = {task.key: task for experiment in made for task in experiment.tasks()}.values()
    runs = [task for task in tasks if isinstance(task, TrainTask)]
    six = ("vanilla-10", "fast", "free-4", "free-8", "trades-10", "free-trades-4")
    found = sorted(
        (run.spec.train_size, run.spec.norm, run.spec.algorithm, run.spec.alpha, run.spec.seed)
        for run in runs
    )
    steps = {("l2", "fast"): 64 / 255, ("linf", "fast"): 7 / 255}
    wanted = [(2048, norm, name, seed) for norm in BOTH for name in six for seed in range(3)]
    wanted += [
        (n, norm, name, seed) for n in (512, 1024) for norm in BOTH for name in THREE for seed in range(3)
    ]
    assert found == sorted((n, norm, name, steps.get((norm, name)), seed) for n, norm, name, seed in wanted)
    assert {(run.spec.model, run.spec.updates, run.spec.precision) for run in runs} == {
        ("resnet18-w16-s2", 200 * 16, "auto")
    }
    largest = {run.key for run in runs if run.spec.train_size == 2048}
    for transferred in (False, True):
        measurements = [task for task in tasks if not isinstance(task, TrainTask)]
        chosen = [task for task in measurements if (task.source is not None) == transferred]
        assert {run.key for task in chosen for run in task.targets} == largest


def test_updates_are_two_hundred_epochs_of_the_published_data() -> None:
    assert {data: updates(PAPER, data) for data in PAPER.setups} == {
        "cifar10": 200 * 391,
        "cifar100": 200 * 391,
        "tiny-imagenet": 200 * 782,
        "svhn": 200 * 573,
    }


@pytest.mark.parametrize("name", ["figure-4", "figure-10"])
def test_the_n_study_keeps_the_updates_and_shares_the_whole_set(name: str) -> None:
    groups = at(PAPER, name).groups
    assert {group.n for group in groups} == {10_000, 20_000, 30_000, 40_000, 50_000}
    assert {run.spec.updates for group in groups for run in group.runs} == {78_200}
    whole = {run.key for group in groups if group.n == 50_000 for run in group.runs}
    assert whole <= {task.key for task in at(PAPER, "table-1").tasks()}


@pytest.mark.parametrize(
    ("name", "l2", "linf"),
    [("figure-2", (64, 192), (1, 9)), ("figure-7", (64, 192), (1, 9)), ("figure-9", (64, 192), (4, 12))],
)
@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_radii_reach_as_far_as_in_the_paper(
    scale: Scale, name: str, l2: tuple[int, int], linf: tuple[int, int]
) -> None:
    for group in at(scale, name).groups:
        ends = {"l2": l2, "linf": linf}[group.norm]
        for measurement in group.measurements:
            assert measurement.norm == group.norm
            assert (round(255 * min(measurement.radii)), round(255 * max(measurement.radii))) == ends


def test_square_has_the_papers_queries_and_every_seed() -> None:
    for group in at(PAPER, "figure-6").groups:
        attacked = [m for m in group.measurements if m.source is None]
        assert [m.target for m in attacked] == list(group.runs)
        assert {m.attack for m in attacked} == {"square-5000"}


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_transferred_attacks_come_from_independent_models(scale: Scale) -> None:
    for name in ("figure-3", "figure-7", "figure-8", "figure-9"):
        for group in at(scale, name).groups:
            assert group.measurements
            for measurement in group.measurements:
                assert measurement.source is not None
                source = measurement.source.spec
                for target in measurement.targets:
                    independent = target.spec.seed != source.seed or target.spec.model != source.model
                    assert independent, (name, measurement.name)


def test_figures_3_and_7_have_both_sources_for_every_run() -> None:
    for group in at(PAPER, "figure-7").groups:
        for run in group.runs:
            sources = {
                m.source.spec.algorithm
                for m in group.measurements
                if m.source is not None and run in m.targets
            }
            assert sources == {"vanilla-10", "free-4"}


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_standard_models_have_seeds_that_no_source_has(scale: Scale) -> None:
    for name in ("figure-8", "figure-9"):
        for group in at(scale, name).groups:
            sources = {run.spec.seed for run in group.runs}
            targets = {run.spec.seed for run in group.targets}
            assert not sources & targets
            assert len(targets) == len(sources) == scale.seeds  # an interval over seeds has several models


@pytest.mark.parametrize("name", ["figure-3", "figure-9"])
def test_transferred_attacks_start_as_the_evaluations_do(name: str) -> None:
    for group in at(PAPER, name).groups:
        for measurement in group.measurements:
            assert measurement.start == ("radius" if group.norm == "l2" else "uniform")


def test_standard_models_are_those_of_their_panel() -> None:
    networks = {"resnet18": "resnet18", "resnet50": "resnet50", "wrn34": "wrn34-10"}
    for name in ("figure-8", "figure-9"):
        for group in at(PAPER, name).groups:
            assert {run.spec.model for run in group.targets} == {networks[group.panel]}
            assert {run.spec.algorithm for run in group.targets} == {"erm"}
            assert group.evaluated == {run.key for run in group.targets}


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_table_6_is_read_at_a_point_of_the_curve(scale: Scale) -> None:
    for group in at(scale, "table-6").groups:
        for run in group.runs:
            assert run.spec.updates is not None
            assert run.evaluation.eval_every is not None
            assert run.spec.updates % 4 == 0
            assert (run.spec.updates // 4) % run.evaluation.eval_every == 0


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_task_names_are_unique(scale: Scale) -> None:
    pairs = {(task.key, task.name) for name in EXPERIMENTS for task in at(scale, name).tasks()}
    assert len(pairs) == len({key for key, _ in pairs}) == len({name for _, name in pairs})


def test_what_a_measurement_opens_is_trained() -> None:
    for name in EXPERIMENTS:
        tasks = list(at(PAPER, name).tasks())
        keys = {task.key for task in tasks}
        assert all(need in keys for task in tasks for need in task.needs)


def test_tables_and_figures_share_their_runs() -> None:
    def runs(name: str) -> set[str]:
        return {run.key for group in at(PAPER, name).groups for run in group.runs}

    assert runs("figure-1") | runs("figure-2") | runs("figure-12") <= runs("table-1")
    assert runs("figure-5") == runs("table-1")


def test_names_are_found_in_the_papers_order() -> None:
    assert names_of(["figure-2", "table-1", "table-1"]) == ("table-1", "figure-2")
    assert names_of(["all"]) == tuple(EXPERIMENTS)
    with pytest.raises(InputError, match="did you mean 'table-1'"):
        names_of(["tabel-1"])


def test_other_data_sets_are_left_out_of_an_experiment() -> None:
    made = make_experiments(["table-1", "table-4"], PAPER, STORE, ["cifar10"])
    assert [experiment.name for experiment in made] == ["table-1"]
    assert {group.data for group in made[0].groups} == {"cifar10"}
