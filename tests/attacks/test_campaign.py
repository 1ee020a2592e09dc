"""Campaigns and transfer matrices: measured once, resumed where they stopped, told apart by what they measure."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from freeat.attacks import campaign
from freeat.attacks import plan as plans
from freeat.attacks.campaign import attack_models, examples_path
from freeat.attacks.examples import load_examples
from freeat.attacks.matrix import transfer_models
from freeat.attacks.measurement import measure
from freeat.attacks.pgd import Pgd
from freeat.attacks.plan import Plan
from freeat.attacks.square import Square
from freeat.data import DataSet, Images
from freeat.errors import InputError
from freeat.initial import weights_digest
from freeat.intervals import wilson
from freeat.opening import Opened
from freeat.threat import Linf

BALLS = (Linf(0.05), Linf(0.12))


def opened(net: nn.Module, name: str) -> Opened:
    return Opened(name=name, model=net, digest=weights_digest(net))


@pytest.fixture(scope="module")
def other_net(robust_net: nn.Module) -> nn.Module:
    """A model near the first, as another seed would give."""
    net = copy.deepcopy(robust_net)
    g = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        parameter.add_(0.1 * parameter.std() * torch.randn(parameter.shape, generator=g))
    return net


@pytest.fixture(scope="module")
def plan(judged: Images) -> Plan:
    data = DataSet(name="digits", train=judged, test=judged, classes=tuple("0123456789"))
    return Plan(
        data=data, attacks=(Pgd(steps=3), Square(queries=10)), balls=BALLS, splits=("train", "test"), n=80
    )


class Counter:
    """Counts the calls of a function while they go through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.calls = 0
        real = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)


def test_a_campaign_measures_every_cell_and_stores_it(
    robust_net: nn.Module, plan: Plan, tmp_path: Path
) -> None:
    report = attack_models([opened(robust_net, "net")], plan, folder=tmp_path)
    cells = report["cells"]
    assert len(cells) == 2 * 2 * 2
    assert {(cell["split"], cell["attack"], cell["eps"]) for cell in cells} == {
        (split, attack, ball.eps)
        for split in ("train", "test")
        for attack in ("pgd-3", "square-10")
        for ball in BALLS
    }
    first = cells[0]
    direct = measure(robust_net, plan.images("train", opened(robust_net, "net"))[0], Pgd(steps=3), BALLS[0], classes=10)
    hits = int(direct.robust_correct.sum())
    assert first["robust_accuracy"] == hits / 80
    assert first["robust_interval"] == list(wilson(hits, 80))
    assert first["fooled"] == direct.index[~direct.robust_correct].tolist()
    assert sum(row["n"] for row in first["per_class"]) == first["n"] == 80
    assert first["population"] == 200
    assert [gap["value"] for gap in report["gaps"]] == [0] * 4, "both splits hold the same images"
    assert all(check["passed"] for check in report["checks"])
    assert report["checks"][0]["sentence"] == "net (Linf): The model is in evaluation mode."
    assert len(list((tmp_path / "cells").glob("*.json"))) == len(cells) + 1  # and the honesty checks
    assert not list(tmp_path.rglob("*.tmp"))


def test_it_goes_on_where_it_stopped(
    robust_net: nn.Module, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(robust_net, "net")
    whole = attack_models([model], plan, folder=tmp_path)
    again = Counter(monkeypatch, plans, "measure")
    probes = Counter(monkeypatch, campaign, "probe")
    assert attack_models([model], plan, folder=tmp_path) == whole
    assert (again.calls, probes.calls) == (0, 0)
    sorted((tmp_path / "cells").glob("*.json"), key=lambda p: p.stat().st_size)[-1].unlink()
    repaired = attack_models([model], plan, folder=tmp_path)
    assert again.calls == 1
    timeless = [[{**cell, "seconds": 0} for cell in report["cells"]] for report in (whole, repaired)]
    assert timeless[0] == timeless[1]


def test_other_weights_images_attacks_and_seeds_are_other_cells(
    robust_net: nn.Module, other_net: nn.Module, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Plan(data=plan.data, attacks=(Pgd(steps=2),), balls=BALLS[:1], n=20)
    attack_models([opened(robust_net, "net")], small, folder=tmp_path)
    again = Counter(monkeypatch, plans, "measure")
    changed = [
        Plan(data=plan.data, attacks=(Pgd(steps=2),), balls=BALLS[:1], n=21),
        Plan(data=plan.data, attacks=(Pgd(steps=2, verdict="last"),), balls=BALLS[:1], n=20),
        Plan(data=plan.data, attacks=(Pgd(steps=2),), balls=BALLS[1:], n=20),
        Plan(data=plan.data, attacks=(Pgd(steps=2),), balls=BALLS[:1], n=20, seed=1),
    ]
    for other in changed:
        attack_models([opened(robust_net, "net")], other, folder=tmp_path)
    assert again.calls == len(changed)
    attack_models([opened(other_net, "net")], small, folder=tmp_path)
    assert again.calls == len(changed) + 1
    attack_models([opened(robust_net, "renamed")], small, folder=tmp_path)
    assert again.calls == len(changed) + 1, "a name is no part of the measurement"


def test_examples_of_models_whose_names_differ_only_in_a_slash_are_kept_apart(
    robust_net: nn.Module, other_net: nn.Module, plan: Plan, tmp_path: Path
) -> None:
    small = Plan(data=plan.data, attacks=(Pgd(steps=1),), balls=BALLS[1:], n=10)
    models = [opened(robust_net, "free-4/seed-0"), opened(other_net, "free-4-seed-0")]
    report = attack_models(models, small, folder=tmp_path, examples=True)
    one, other = (load_examples(examples_path(tmp_path, cell))["delta"] for cell in report["cells"])
    assert not np.array_equal(one, other)


def test_examples_bear_out_the_verdicts(robust_net: nn.Module, plan: Plan, tmp_path: Path) -> None:
    small = Plan(data=plan.data, attacks=(Pgd(steps=3),), balls=BALLS[1:], n=40)
    report = attack_models([opened(robust_net, "net")], small, folder=tmp_path, examples=True)
    stored = load_examples(examples_path(tmp_path, report["cells"][0]))
    shown = torch.from_numpy(np.clip(stored["x"] + stored["delta"], 0, 1))
    predicted = robust_net(shown).argmax(-1).numpy()
    fooled = stored["predicted"] != stored["y"]
    assert np.array_equal(predicted[fooled], stored["predicted"][fooled])
    assert stored["index"][fooled].tolist() == report["cells"][0]["fooled"]
    with pytest.raises(InputError, match="--out"):
        attack_models([opened(robust_net, "net")], small, examples=True)


def test_a_matrix_makes_each_perturbation_once(
    robust_net: nn.Module, other_net: nn.Module, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [opened(robust_net, "a"), opened(other_net, "b")]
    small = Plan(data=plan.data, attacks=(Pgd(steps=5, verdict="last"),), balls=BALLS, n=80)
    made = Counter(monkeypatch, plans, "measure")
    report = transfer_models(models, models, small, folder=tmp_path)
    assert made.calls == 2 * len(BALLS)
    cells = {(cell["source"], cell["model"], cell["eps"]): cell for cell in report["cells"]}
    assert len(cells) == 2 * 2 * len(BALLS)
    assert transfer_models(models, models, small, folder=tmp_path) == report
    assert made.calls == 2 * len(BALLS), "stored cells need no perturbation"
    for cell in cells.values():
        assert cell["own"] == (cell["source"] == cell["model"])
        assert cell["black_box"] != cell["own"]
    images = small.images("test", models[0])[0]
    own = measure(robust_net, images, small.attacks[0], BALLS[1], classes=10)
    assert cells["a", "a", BALLS[1].eps]["fooled"] == own.index[~own.robust_correct].tolist()
    x, y = images.batch(torch.arange(80))
    crossed = other_net(BALLS[1].apply(x, own.delta)).argmax(-1) == y
    assert cells["a", "b", BALLS[1].eps]["robust_accuracy"] == float(crossed.double().mean())


def test_progress_counts_every_image(robust_net: nn.Module, plan: Plan) -> None:
    done: dict[str, int] = {}

    def watch(title: str, images: int) -> Any:
        def count(more: int) -> None:
            done[title] = done.get(title, 0) + more

        return count

    small = Plan(data=plan.data, attacks=(Pgd(steps=1),), balls=BALLS[:1], n=50, batch_size=16)
    attack_models([opened(robust_net, "net")], small, watch=watch)
    assert done == {"net: pgd-1, linf ε = 0.05, test": 50, "net: honesty checks": 1}


def test_refusals(robust_net: nn.Module, plan: Plan) -> None:
    with pytest.raises(InputError, match="NAME=REFERENCE"):
        attack_models([opened(robust_net, "net")] * 2, plan)
    for wrong in ({"splits": ("tset",)}, {"n": 0}, {"batch_size": 0}):
        with pytest.raises(InputError):
            Plan(data=plan.data, attacks=(Pgd(),), balls=BALLS, **wrong)  # type: ignore[arg-type]


def test_an_unfooled_image_transfers_its_last_iterate(
    robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    """A failed attack must still hand on its perturbation: zero would make every transfer look harmless."""
    from freeat.streams import ImageCoins

    x, y = batch
    attacked = Pgd(steps=5, verdict="last")(robust_net, x, y, BALLS[0], ImageCoins(0, range(len(x))))
    assert (BALLS[0].size(attacked.delta[~attacked.fooled]) > 0.9 * BALLS[0].eps).all()
