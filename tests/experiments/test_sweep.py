"""Sweeps and transfer matrices: evaluated once, resumed where they stopped, distinguished by what they depend on."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from freeat.attacks.apgd import Apgd
from freeat.attacks.autoattack import AutoAttack, Fab, PyAutoAttack
from freeat.attacks.pgd import Pgd
from freeat.attacks.result import Attack
from freeat.attacks.square import Square
from freeat.data import DataSet, Images
from freeat.errors import InputError
from freeat.evaluation.evaluate import Evaluation, evaluate, joined
from freeat.evaluation.statistics import wilson
from freeat.experiments import blocks, evaluations
from freeat.experiments.evaluations import evaluate_models, transfer_models
from freeat.experiments.examples import load_examples
from freeat.experiments.sweep import Sweep
from freeat.runs.build import weights_digest
from freeat.runs.open import Opened
from freeat.runs.results import Blocks, Results, StoredEvaluation
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
def sweep(eval_images: Images) -> Sweep:
    data = DataSet(name="digits", train=eval_images, test=eval_images, classes=tuple("0123456789"))
    return Sweep(
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


def test_a_sweep_stores_a_result_for_every_condition(
    robust_net: nn.Module, sweep: Sweep, tmp_path: Path
) -> None:
    report = evaluate_models([opened(robust_net, "net")], sweep, folder=tmp_path)
    results = report.results
    assert len(results) == 2 * 2 * 2
    assert {(result.split, result.attack, result.eps) for result in results} == {
        (split, attack, ball.eps)
        for split in ("train", "test")
        for attack in ("pgd-3", "square-10")
        for ball in BALLS
    }
    first = results[0]
    direct = evaluate(
        robust_net, sweep.images("train", opened(robust_net, "net"))[0], Pgd(steps=3), BALLS[0], classes=10
    )
    hits = int(direct.robust_correct.sum())
    assert first.robust_accuracy == hits / 80
    assert first.robust_interval == wilson(hits, 80)
    assert list(first.fooled) == direct.index[~direct.robust_correct].tolist()
    assert sum(row.n for row in first.per_class) == first.n == 80
    assert first.population == 200
    assert [gap.value for gap in report.gaps] == [0] * 4, "both splits hold the same images"
    assert all(check.passed for check in report.checks)
    assert report.checks[0].sentence == "net (Linf): The model is in evaluation mode."
    assert len(list(tmp_path.glob("*.json"))) == len(results) + 1  # and the sanity checks
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_sweep_resumes_where_it_stopped(
    robust_net: nn.Module, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(robust_net, "net")
    whole = evaluate_models([model], sweep, folder=tmp_path)
    again = Counter(monkeypatch, blocks, "evaluate")
    probes = Counter(monkeypatch, evaluations, "sanity_checks")
    assert evaluate_models([model], sweep, folder=tmp_path) == whole
    assert (again.calls, probes.calls) == (0, 0)
    sorted(tmp_path.glob("*.json"), key=lambda p: p.stat().st_size)[-1].unlink()
    repaired = evaluate_models([model], sweep, folder=tmp_path)
    assert again.calls == 1
    timeless = [[replace(one, seconds=0) for one in report.results] for report in (whole, repaired)]
    assert timeless[0] == timeless[1]


def test_other_weights_images_attacks_and_seeds_are_other_results(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Sweep(data=sweep.data, attacks=(Pgd(steps=2),), balls=BALLS[:1], n=20)
    evaluate_models([opened(robust_net, "net")], small, folder=tmp_path)
    again = Counter(monkeypatch, blocks, "evaluate")
    changed = [
        Sweep(data=sweep.data, attacks=(Pgd(steps=2),), balls=BALLS[:1], n=21),
        Sweep(data=sweep.data, attacks=(Pgd(steps=2, iterate="last"),), balls=BALLS[:1], n=20),
        Sweep(data=sweep.data, attacks=(Pgd(steps=2),), balls=BALLS[1:], n=20),
        Sweep(data=sweep.data, attacks=(Pgd(steps=2),), balls=BALLS[:1], n=20, seed=1),
    ]
    for other in changed:
        evaluate_models([opened(robust_net, "net")], other, folder=tmp_path)
    assert again.calls == len(changed)
    evaluate_models([opened(other_net, "net")], small, folder=tmp_path)
    assert again.calls == len(changed) + 1
    evaluate_models([opened(robust_net, "renamed")], small, folder=tmp_path)
    assert again.calls == len(changed) + 1, "a name is no part of the identity"


def test_examples_of_names_that_differ_in_a_slash_have_different_files(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep, tmp_path: Path
) -> None:
    small = Sweep(data=sweep.data, attacks=(Pgd(steps=1),), balls=BALLS[1:], n=10)
    models = [opened(robust_net, "free-4/seed-0"), opened(other_net, "free-4-seed-0")]
    report = evaluate_models(models, small, folder=tmp_path, examples=True)
    one, other = (load_examples(Path(str(result.examples))).delta for result in report.results)
    assert not np.array_equal(one, other)


def test_each_result_has_its_own_examples(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep, tmp_path: Path
) -> None:
    """Another seed, number of images or training of the same run must not find the arrays of the first."""
    kinds: tuple[dict[str, Any], ...] = ({"n": 10}, {"n": 10, "seed": 1}, {"n": 12})
    kinds_of_sweep = [
        Sweep(data=sweep.data, attacks=(Pgd(steps=1),), balls=BALLS[1:], **kind) for kind in kinds
    ]
    asked = [(robust_net, one) for one in kinds_of_sweep] + [(other_net, kinds_of_sweep[0])]
    paths = []
    for net, one in asked * 2:
        (result,) = evaluate_models([opened(net, "net")], one, folder=tmp_path, examples=True).results
        stored = load_examples(Path(str(result.examples)))
        assert len(stored.y) == result.n
        assert stored.index[stored.predicted != stored.y].tolist() == list(result.fooled)
        paths.append(result.examples)
    assert len({*paths}) == len(asked)
    assert paths[: len(asked)] == paths[len(asked) :]


class Cut(Exception):
    """The process was killed."""


@pytest.mark.parametrize("examples", [False, True])
def test_an_interrupted_evaluation_loses_at_most_a_block_and_ends_the_same(
    examples: bool, robust_net: nn.Module, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Sweep(data=sweep.data, attacks=(Square(queries=20),), balls=BALLS[1:], n=50, batch_size=8)
    model = opened(robust_net, "net")
    monkeypatch.setattr(blocks, "BLOCK", 16)
    calls = Counter(monkeypatch, blocks, "evaluate")
    (whole,) = evaluate_models([model], long, folder=tmp_path / "whole", examples=examples).results
    assert calls.calls == 4, "blocks of whole batches"

    def cut(title: str, images: int) -> Any:
        def count(more: int) -> None:
            if calls.calls == 6:
                raise Cut

        return count

    def run(watch: Any) -> Any:
        return evaluate_models([model], long, folder=tmp_path / "cut", examples=examples, watch=watch)

    with pytest.raises(Cut):
        run(cut)
    assert len(list((tmp_path / "cut").rglob("block-*"))) == 1
    done: list[int] = []
    (resumed,) = run(lambda title, images: done.append).results
    assert calls.calls == 6 + 3, "one block of four was found"
    assert done[0] == 16
    timeless = [replace(one, seconds=0, examples=None) for one in (whole, resumed)]
    assert timeless[0] == timeless[1]
    assert not list((tmp_path / "cut").rglob("*.blocks"))
    if examples:
        one, other = (load_examples(Path(str(result.examples))) for result in (whole, resumed))
        assert np.array_equal(one.delta, other.delta)


def test_a_damaged_block_is_evaluated_again(
    robust_net: nn.Module, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 10)
    long = Sweep(data=sweep.data, attacks=(Pgd(steps=1),), balls=BALLS[1:], n=30, batch_size=10)
    model, kept = opened(robust_net, "net"), Blocks(tmp_path / "blocks")
    (condition,) = long.conditions(model)

    def evaluated() -> Evaluation:
        work = blocks.BlockwiseEvaluation(model, long, condition, blocks.no_progress, keep_delta=True)
        assert work.share(kept, published=lambda: False)
        return joined(list(work.blocks(kept)))

    whole = evaluated()
    (tmp_path / "blocks" / "block-00001.safetensors").write_bytes(b"torn")
    again = Counter(monkeypatch, blocks, "evaluate")
    other = evaluated()
    assert again.calls == 1
    assert torch.equal(other.index, whole.index)
    assert torch.equal(other.perturbations, whole.perturbations)
    assert torch.equal(other.robust_correct, whole.robust_correct)
    assert evaluated().cost == whole.cost
    kept.clear()
    assert not (tmp_path / "blocks").exists()


def test_out_of_memory_names_a_smaller_batch_size(robust_net: nn.Module, sweep: Sweep) -> None:
    class Hungry(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = robust_net

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 8:
                raise torch.OutOfMemoryError("CUDA out of memory")
            logits: Tensor = self.net(x)
            return logits

    hungry = Sweep(data=sweep.data, attacks=(Pgd(steps=1),), balls=BALLS[:1], n=40, batch_size=16)
    with pytest.raises(
        InputError, match=r"out of memory with 16 images at a time: .* --batch-size, e\.g\. 8"
    ):
        evaluate_models([opened(Hungry(), "net")], hungry)
    report = evaluate_models([opened(Hungry().eval(), "net")], replace(hungry, batch_size=8))
    assert all(check.passed for check in report.checks), "they keep to the batch size too"
    assert report.checks == evaluate_models([opened(robust_net, "net")], hungry).checks


def test_a_whole_split_is_not_copied(robust_net: nn.Module, sweep: Sweep) -> None:
    model = opened(robust_net, "net")
    assert replace(sweep, n=None).images("test", model) == (sweep.data.test, 200)
    assert replace(sweep, n=999).images("test", model)[0] is sweep.data.test


def test_result_holds_settings_and_provenance(robust_net: nn.Module, sweep: Sweep) -> None:
    rough = Sweep(
        data=sweep.data, attacks=(Pgd(steps=1, alpha=0.03, precision="bf16"),), balls=BALLS[:1], n=5
    )
    (result,) = evaluate_models([opened(robust_net, "net")], rough).results
    assert result.settings == {
        "steps": 1, "restarts": 1, "alpha": 0.03, "start": "uniform", "iterate": "worst", "loss": "ce",
        "precision": "bf16",
    }  # fmt: skip
    assert (result.batch_size, result.device) == (256, "cpu")
    assert result.versions.keys() >= {"freeat", "torch"}
    assert result.command.startswith("freeat")


def test_stored_examples_reproduce_the_outcomes(robust_net: nn.Module, sweep: Sweep, tmp_path: Path) -> None:
    small = Sweep(data=sweep.data, attacks=(Pgd(steps=3),), balls=BALLS[1:], n=40)
    report = evaluate_models([opened(robust_net, "net")], small, folder=tmp_path, examples=True)
    stored = load_examples(Path(str(report.results[0].examples)))
    shown = torch.from_numpy(np.clip(stored.x + stored.delta, 0, 1))
    predicted = robust_net(shown).argmax(-1).numpy()
    fooled = stored.predicted != stored.y
    assert np.array_equal(predicted, stored.predicted)
    assert stored.index[fooled].tolist() == list(report.results[0].fooled)
    with pytest.raises(InputError, match="--out"):
        evaluate_models([opened(robust_net, "net")], small, examples=True)


def test_transfer_matrix_makes_each_perturbation_once(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [opened(robust_net, "a"), opened(other_net, "b")]
    small = Sweep(data=sweep.data, attacks=(Pgd(steps=5, iterate="last"),), balls=BALLS, n=80)
    made = Counter(monkeypatch, blocks, "evaluate")
    report = transfer_models(models, models, small, folder=tmp_path)
    assert made.calls == 2 * len(BALLS)
    results = {(result.source, result.model, result.eps): result for result in report.results}
    assert len(results) == 2 * 2 * len(BALLS)
    assert transfer_models(models, models, small, folder=tmp_path) == report
    assert made.calls == 2 * len(BALLS), "stored results need no perturbation"
    for result in results.values():
        assert result.own == (result.source == result.model)
        assert result.black_box != result.own
    images = small.images("test", models[0])[0]
    own = evaluate(robust_net, images, small.attacks[0], BALLS[1], classes=10, keep_delta=True)
    assert list(results["a", "a", BALLS[1].eps].fooled) == own.index[~own.robust_correct].tolist()
    x, y = images.batch(torch.arange(80))
    crossed = other_net(BALLS[1].apply(x, own.delta)).argmax(-1) == y
    assert results["a", "b", BALLS[1].eps].robust_accuracy == float(crossed.double().mean())


def test_a_transfer_measured_again_has_the_names_given_last(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the report of the command, and in the store that `freeat report` reads."""
    small = Sweep(data=sweep.data, attacks=(Pgd(steps=1, iterate="last"),), balls=BALLS[:1], n=20)
    made = Counter(monkeypatch, blocks, "evaluate")
    for source, target in (("a", "b"), ("first", "second")):
        models = [opened(robust_net, source)], [opened(other_net, target)]
        (shown,) = transfer_models(*models, small, folder=tmp_path, checks=False).results
        (stored,) = Results(tmp_path).evaluations()
        assert stored == shown
        assert (stored.source, stored.model, stored.attack) == (source, target, f"pgd-1 from {source}")
    assert made.calls == 1


def test_transfer_holds_its_cost_and_notes_on_weak_attacks(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep
) -> None:
    a, b = opened(robust_net, "a"), opened(other_net, "b")

    def moved(attack: Attack) -> StoredEvaluation:
        report = transfer_models([a], [b], Sweep(data=sweep.data, attacks=(attack,), balls=BALLS[1:], n=40))
        return report.results[0]

    strong = moved(Pgd(steps=3, iterate="last"))
    assert strong.perturbation_cost is not None
    assert strong.perturbation_cost.cost.gradient_evaluations == 3 * 40
    assert strong.perturbation_cost.queries is None
    assert strong.cost.forward_passes == 2 * 40
    assert strong.notes == ()
    for weak in (Pgd(steps=3, iterate="worst"), Square(queries=10)):
        (note,) = moved(weak).notes
        assert f"{weak.name} stops at the first perturbation that fools its source" in note
    cost = moved(Square(queries=10)).perturbation_cost
    assert cost is not None
    assert cost.queries is not None
    assert cost.queries.most == 10
    with pytest.raises(InputError, match="look harmless"):
        moved(Fab())
    (note,) = moved(Apgd(steps=3)).notes
    assert "apgd-ce-3 stops at the first perturbation that fools its source" in note


def test_a_transfer_carries_the_notes_of_its_attack(
    robust_net: nn.Module, other_net: nn.Module, eval_images: Images
) -> None:
    three = Images(x=eval_images.x, y=eval_images.y % 3, index=eval_images.index)
    data = DataSet(name="three", train=three, test=three, classes=tuple("abc"), notes=("made up",))
    nets = [nn.Sequential(net, nn.Linear(10, 3)).eval() for net in (robust_net, other_net)]
    small = Sweep(data=data, attacks=(Pgd(steps=1, loss="dlr", iterate="last"),), balls=BALLS[:1], n=10)
    (result,) = transfer_models([opened(nets[0], "a")], [opened(nets[1], "b")], small).results
    assert result.notes[0] == "made up"
    assert "undefined with 3 classes" in result.notes[1]


def test_transfers_are_compared_with_stored_white_box_results(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep, tmp_path: Path
) -> None:
    a, b = opened(robust_net, "a"), opened(other_net, "b")
    small = Sweep(data=sweep.data, attacks=(Pgd(steps=5, iterate="last"),), balls=BALLS[1:], n=40)
    checks = transfer_models([a], [b], small, folder=tmp_path).checks
    for name in "ab":
        assert any(check.sentence.startswith(f"{name} (Linf): The model gives") for check in checks)
    assert not any("black-box attack" in check.sentence for check in checks), "no white-box result is known"
    evaluate_models([b], small, folder=tmp_path)
    stored = next(path for path in tmp_path.glob("*.json") if '"kind": "evaluation"' in path.read_text())
    checks = transfer_models([a], [b], small, folder=tmp_path).checks
    assert "b (Linf, test): at no radius does a black-box attack beat the white-box ones." in [
        check.sentence for check in checks
    ]
    document = json.loads(stored.read_text())
    stored.write_text(json.dumps(document | {"fooled": [], "robust_accuracy": 1.0}))
    checks = transfer_models([a], [b], small, folder=tmp_path).checks
    assert any("pgd-5 from a leaves" in check.sentence for check in checks if not check.passed)


def test_checks_are_made_at_radius_0_too(robust_net: nn.Module, sweep: Sweep) -> None:
    zero = Sweep(data=sweep.data, attacks=(Pgd(steps=5),), balls=(Linf(0.0),), n=40)
    report = evaluate_models([opened(robust_net, "net")], zero)
    assert {check.name for check in report.checks} >= {
        "deterministic",
        "gradients",
        "very large radius",
    }
    assert report.results[0].robust_accuracy == report.results[0].clean_accuracy
    assert report.stored == ()


def test_identity_of_autoattack_holds_version_and_batch_size(robust_net: nn.Module, sweep: Sweep) -> None:
    pytest.importorskip("pyautoattack")
    model = opened(robust_net, "net")

    def key(sweep: Sweep, attack: Attack) -> dict[str, Any]:
        (condition,) = replace(sweep, attacks=(attack,), balls=BALLS[:1]).conditions(model, "test")
        return sweep.identity("evaluation", model, condition)

    other = replace(sweep, batch_size=7)
    for attack in (AutoAttack(), Fab(), PyAutoAttack()):
        assert "pyautoattack 0." in key(sweep, attack)["package"]
        per_batch = isinstance(attack, PyAutoAttack)
        assert (key(sweep, attack) != key(other, attack)) == per_batch, "only the package draws for batches"
    without_fab = AutoAttack(parts=("apgd-ce", "square"))
    assert "package" not in key(sweep, without_fab)
    assert key(sweep, AutoAttack()) != key(sweep, AutoAttack(precision="bf16"))
    assert key(sweep, Pgd()) == key(other, Pgd()), "built-in attacks draw for each image"


def test_progress_counts_every_image(robust_net: nn.Module, sweep: Sweep) -> None:
    done: dict[str, int] = {}

    def watch(title: str, images: int) -> Any:
        def count(more: int) -> None:
            done[title] = done.get(title, 0) + more

        return count

    small = Sweep(data=sweep.data, attacks=(Pgd(steps=1),), balls=BALLS[:1], n=50, batch_size=16)
    evaluate_models([opened(robust_net, "net")], small, watch=watch)
    assert done == {"net: pgd-1, linf ε = 0.05, test": 50, "net: sanity checks": 1}
    done.clear()
    evaluate_models([opened(robust_net, "net")], replace(small, balls=BALLS), watch=watch)
    assert done == {
        "[1/2] net: pgd-1, linf ε = 0.05, test": 50,
        "[2/2] net: pgd-1, linf ε = 0.12, test": 50,
        "net: sanity checks": 1,
    }


def test_progress_moves_within_a_batch_of_many_queries(robust_net: nn.Module, eval_images: Images) -> None:
    counts: list[int] = []
    evaluate(robust_net, eval_images, Square(queries=10), BALLS[0], classes=10, progress=counts.append)
    assert len(counts) >= 10
    assert max(counts) <= len(eval_images) // 10
    assert sum(counts) == len(eval_images)


def test_bad_sweeps_are_refused(robust_net: nn.Module, sweep: Sweep) -> None:
    with pytest.raises(InputError, match="NAME=REFERENCE"):
        evaluate_models([opened(robust_net, "net")] * 2, sweep)
    for wrong in ({"splits": ("tset",)}, {"n": 0}, {"batch_size": 0}):
        with pytest.raises(InputError):
            Sweep(data=sweep.data, attacks=(Pgd(),), balls=BALLS, **wrong)  # type: ignore[arg-type]


def test_an_unfooled_image_transfers_its_last_iterate(
    robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    """A failed attack must still hand on its perturbation: zero would make every transfer look harmless."""
    from freeat.rng import ImageRng

    x, y = batch
    attacked = Pgd(steps=5, iterate="last")(robust_net, x, y, BALLS[0], ImageRng(0, range(len(x))))
    assert (BALLS[0].size(attacked.delta[~attacked.fooled]) > 0.9 * BALLS[0].eps).all()


def test_own_black_box_attack_stays_black_box(
    robust_net: nn.Module, other_net: nn.Module, sweep: Sweep
) -> None:
    both = [opened(robust_net, "net"), opened(other_net, "other")]
    small = replace(
        sweep,
        splits=("test",),
        balls=BALLS[:1],
        n=20,
        attacks=(Pgd(steps=2, iterate="last"), Square(queries=5)),
    )
    results = transfer_models(both[:1], both, small, checks=False).results
    found = {(result.model, result.attack.split()[0]): (result.own, result.black_box) for result in results}
    assert found == {
        ("net", "pgd-2"): (True, False),
        ("net", "square-5"): (True, True),
        ("other", "pgd-2"): (False, True),
        ("other", "square-5"): (False, True),
    }


def test_the_same_weights_in_other_layers_are_another_model(robust_net: nn.Module, sweep: Sweep) -> None:
    layers = copy.deepcopy(robust_net)
    wrapped = nn.Sequential(*layers.children(), nn.Identity())
    small = replace(sweep, splits=("test",), balls=BALLS[:1], n=20, attacks=(Pgd(steps=2, iterate="last"),))
    other = Opened(name="other", model=wrapped, digest=weights_digest(robust_net))
    (result,) = transfer_models([opened(robust_net, "net")], [other], small, checks=False).results
    assert not result.own
