"""Training with evaluations, which cost what is predicted and change no weight, and the guards."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freeat.algorithms import StepRecord
from freeat.evaluation.evaluate import NonFiniteLogits
from freeat.evaluation.evaluator import Evaluator, OneStep, Scores, spent
from freeat.experiments.curves import comparable
from freeat.learner import Learner
from freeat.learner.distributed import SINGLE_PROCESS
from freeat.learner.modifiers import WeightAverage
from freeat.runs.folder import RunFolder
from freeat.runs.run import RunOptions, assemble
from freeat.runs.spec import split_settings
from freeat.training.loop import Diverged, Meter, check_weights, train
from freeat.training.trainer import CheckpointFacts, Stopped, Trainer
from small_runs import SMALL_RUN, carry_out, outcome
from troubled_models import FailingNet


def make_trainer(folder: Path, **changes: Any) -> Trainer:
    settings = {name: value for name, value in {**SMALL_RUN, **changes}.items() if value is not None}
    training, evaluation = split_settings(settings)
    options = RunOptions(folder=folder, trust_code=True)
    trainer, _ = assemble(training, evaluation, options, torch.device("cpu"), SINGLE_PROCESS)
    trainer.folder = None
    return trainer


PLAIN = {"eval_every": None, "eval_size": None, "final_size": 8, "attack": "pgd-10", "batch_size": 60}
SPENDERS: dict[str, dict[str, Any]] = {
    "erm": {},
    "fast": {},
    "vanilla-3": {},
    "free-4": {},
    "trades-2": {},
    "friendly": {"updates": 24},
    "free-4 small last batch": {"train_size": 70, "batch_size": 64},
    "fast average": {"ema": 0.9},
    "fast validation": {"validation": 0.5, "augment": "crop"},
    "fast independent": {"batch_size": 20, "sampling": "independent"},
}


@pytest.mark.parametrize("row", SPENDERS)
def test_a_curve_has_twelve_points_and_says_what_it_cost(tmp_path: Path, row: str) -> None:
    settings = {**PLAIN, "updates": 48, "algorithm": row.split()[0], **SPENDERS[row]}
    trainer = make_trainer(tmp_path, **settings)
    seen = 0

    def count(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        nonlocal seen
        seen += len(output)

    models = [trainer.learner.model, *([trainer.learner.average.model] if trainer.learner.average else [])]
    for model in models:
        model.register_forward_hook(count)
    final = trainer.run()
    evaluated = [record for record in trainer.history if record.kind == "evaluation"]
    updates = [record.update for record in evaluated]
    assert updates == sorted(set(updates))
    assert (updates[0], updates[-1], len(updates)) == (0, settings["updates"], 13)
    n = len(trainer.evaluator.train)
    assert {(record.train.n, record.test.n) for record in evaluated} == {(min(n, 128), 128)}
    assert (final.kind, final.train.n, final.test.n) == ("final", 8, 8)
    on_evaluation = sum(spent(record, record.one_step, record.ema) for record in evaluated)
    on_training = final.gradient_evaluations + final.forward_passes / 3
    assert final.evaluation_share == pytest.approx(on_evaluation / on_training)
    scores = [part for record in trainer.history for part in (record, record.ema) if part is not None]
    parts = [split for part in scores for split in part.splits.values()]
    parts += [record.one_step for record in trainer.history if record.one_step is not None]
    evaluated = sum(part.cost.gradient_evaluations + part.cost.forward_passes for part in parts)
    assert seen == final.gradient_evaluations + final.forward_passes + evaluated


@pytest.mark.parametrize("algorithm", ["free-4", "vanilla-2", "free-trades-4"])
def test_evaluation_does_not_disturb_training(tmp_path: Path, algorithm: str) -> None:
    settings = {"algorithm": algorithm, "model": "cnn-w4"}
    often = carry_out(tmp_path / "often", **settings, eval_every=1)
    carry_out(tmp_path / "never", **settings, eval_every=1000)
    one, other = (RunFolder(tmp_path / name).weights() for name in ("often", "never"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    histories = [list(RunFolder(tmp_path / name).history()) for name in ("often", "never")]
    assert len(histories[0]) > 3
    assert len(histories[1]) == 1
    assert often.test == histories[1][0].test


@pytest.mark.parametrize("algorithm", ["free-4", "vanilla-2"])
def test_the_strength_of_the_attack_is_recorded_without_disturbing_training(
    tmp_path: Path, algorithm: str
) -> None:
    settings: dict[str, Any] = {"algorithm": algorithm, "model": "cnn-w4", "augment": "crop", "updates": 16}
    carry_out(tmp_path / "with", **settings, strength=True)
    carry_out(tmp_path / "without", **settings)
    one, other = (RunFolder(tmp_path / name) for name in ("with", "without"))
    assert all(torch.equal(value, other.weights()[name]) for name, value in one.weights().items())
    records = list(one.history())
    assert len(records) > 2
    for record, plain in zip(records, other.history(), strict=True):
        assert record.train == plain.train
        assert plain.strength is None
        assert record.strength is not None
        assert 0 < record.strength.size <= 1 + 1e-5
        assert record.strength.cost.gradient_evaluations > 0
    assert records[-1].evaluation_share > list(other.history())[-1].evaluation_share
    final = records[-1].strength
    assert final is not None
    assert final.margin_share > 0


def test_without_an_attack_there_is_no_strength(tmp_path: Path) -> None:
    assert carry_out(tmp_path, algorithm="erm", strength=True).strength is None


def test_evaluations_fall_on_the_first_batch_boundary(tmp_path: Path) -> None:
    carry_out(tmp_path / "free", algorithm="free-4", updates=30, eval_every=5)
    records = list(RunFolder(tmp_path / "free").history())
    assert [r.update for r in records] == [0, 8, 12, 16, 20, 28, 30, 30]
    assert [r.batch for r in records] == [0, 2, 3, 4, 5, 7, 8, 8]
    assert [r.kind for r in records] == ["evaluation"] * 7 + ["final"]


def test_a_final_evaluation_on_the_images_of_the_curve_is_its_last_point(tmp_path: Path) -> None:
    carry_out(tmp_path, algorithm="fast", updates=30, eval_every=10, eval_size=24, final_size=24)
    records = list(RunFolder(tmp_path).history())
    assert [(r.update, r.kind) for r in records] == [
        *((update, "evaluation") for update in (0, 10, 20)),
        (30, "final"),
    ]


@pytest.mark.parametrize("resized", [16, 24])
def test_a_curve_is_one_line_from_the_first_update_to_the_last(tmp_path: Path, resized: int) -> None:
    carry_out(tmp_path, algorithm="free-4", updates=30, eval_every=10, eval_size=16, final_size=resized)
    line = comparable(list(RunFolder(tmp_path).history()))
    assert [record.update for record in line] == [0, 12, 20, 30]
    assert {(record.train.n, record.test.n) for record in line} == {(16, 16)}


def test_all_algorithms_of_a_comparison_have_one_curve(tmp_path: Path) -> None:
    curves = {
        make_trainer(tmp_path / name, **{**PLAIN, "updates": 40_000, "algorithm": name}).evaluations
        for name in ("erm", "vanilla-10", "fast", "free-4", "trades-10")
    }
    (curve,) = curves
    assert curve.size > 128  # cheap enough for more


def test_records_hold_epochs_updates_gradient_evaluations_and_time(tmp_path: Path) -> None:
    final = carry_out(tmp_path, algorithm="free-2", updates=16)
    assert (final.update, final.batch) == (16, 8)
    assert (final.epoch, final.equivalent_epoch) == (2.0, 4.0)
    assert final.gradient_evaluations == 2 * 2 * 60
    assert final.seconds > 0
    assert final.training_loss > 0
    last_batches = 2 * (16 + 12)  # since the evaluation at update 12
    assert sum(final.gradient_norms.bins.values()) == last_batches


def test_replayed_batches_count_updates_not_epochs(tmp_path: Path) -> None:
    final = carry_out(tmp_path, algorithm="fast", updates=16, replay=4)
    assert (final.update, final.batch) == (16, 16)
    assert (final.epoch, final.equivalent_epoch) == (1.0, 4.0)


@pytest.mark.parametrize("algorithm", ["erm", "vanilla-2", "fast", "friendly", "free-2"])
def test_a_replayed_batch_has_the_same_view_and_new_starts(tmp_path: Path, algorithm: str) -> None:
    """Three steps in a row on the same images, cropped alike; the attack of each begins elsewhere."""
    trainer = make_trainer(
        tmp_path, algorithm=algorithm, augment="crop", replay=3, updates=14, lr=1e-9, sampling="independent"
    )
    once = make_trainer(
        tmp_path, algorithm=algorithm, augment="crop", updates=14, lr=1e-9, sampling="independent"
    )
    seen = [_views(one) for one in (trainer, once)]
    batches = [len(views) for views in seen]
    assert batches[0] == batches[1] == (7 if algorithm == "free-2" else 14)
    for t, (x, y, delta) in enumerate(seen[0]):
        first = seen[1][t // 3]
        assert torch.equal(x, first[0])
        assert torch.equal(y, first[1])
        if t % 3 and algorithm != "erm":
            assert not torch.equal(delta, seen[0][t - 1][2])


def _views(trainer: Trainer) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The images, labels and perturbations of every batch of a training."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    class Seen:
        def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
            record = trainer.algorithm.step(learner, x, y)
            seen.append((x, y, record.delta))
            return record

    images = trainer.evaluator.train
    list(train(trainer.learner, Seen(), images, trainer.batches, trainer.augment))  # type: ignore[arg-type]
    return seen


@dataclass(frozen=True, kw_only=True)
class ScriptedEvaluator(Evaluator):
    """An evaluator that returns the accuracies of a collapsing model."""

    pgd: list[float]
    one_step_says: float = 0.95
    returned: list[float] = field(default_factory=list)

    def scores(self, model: nn.Module, size: int | None = None) -> Scores:
        scores = super().scores(model, size)
        self.returned.append(self.pgd[min(len(self.returned), len(self.pgd) - 1)])
        return replace(scores, train=replace(scores.train, robust_accuracy=self.returned[-1]))

    def one_step(self, model: nn.Module, size: int | None = None) -> OneStep:
        return replace(super().one_step(model, size), robust_accuracy=self.one_step_says)


def scripted(tmp_path: Path, pgd: list[float], on_collapse: Any, algorithm: str = "fast") -> Trainer:
    trainer = make_trainer(tmp_path, algorithm=algorithm, updates=20, eval_every=4, eval_size=24)
    trainer.evaluator = ScriptedEvaluator(
        **vars(trainer.evaluator), pgd=[0.1, *pgd]
    )  # before the first update
    trainer.on_collapse = on_collapse
    trainer.folder = RunFolder(tmp_path)
    return trainer


def test_a_collapse_is_reported_and_training_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = scripted(tmp_path, [0.3, 0.5, 0.1, 0.45], "warn")
    trainer.run()
    assert [record.collapsed for record in trainer.history] == [False, False, False, True, False, False]
    assert "catastrophic overfitting" in trainer.history[3].collapse
    assert "update 12: collapse" in caplog.text
    assert trainer.best_robust == 0.5


@pytest.mark.parametrize("algorithm", ["fast", "vanilla-3"])
def test_only_training_with_one_step_overfits_catastrophically(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, algorithm: str
) -> None:
    trainer = scripted(tmp_path, [0.5, 0.1, 0.5, 0.5, 0.1], "warn", algorithm)
    trainer.final_size = 12
    trainer.run()
    first, last = (record.getMessage() for record in caplog.records if "one-step" in record.getMessage())
    assert first.startswith("update 8: "), "one line of each update, and two evaluations of the last one"
    assert last.startswith("update 20: ")
    assert [record.update for record in trainer.history if record.collapse] == [8, 20, 20]
    one_step = algorithm == "fast"
    assert [record.collapsed for record in trainer.history if record.collapse] == [one_step] * 3
    for text in (first, last):
        assert ("catastrophic overfitting" in text) is ("n-fgsm" in text) is one_step
        assert ("resists one step and not PGD" in text) is not one_step


def test_a_model_that_resists_one_step_only_does_not_stop_other_trainings(tmp_path: Path) -> None:
    assert scripted(tmp_path, [0.3, 0.5, 0.1], "stop", "vanilla-3").run().update == 20


def test_a_collapse_stops_where_asked(tmp_path: Path) -> None:
    trainer = scripted(tmp_path, [0.3, 0.5, 0.1], "stop")
    with pytest.raises(Stopped, match="update 12 because of a collapse"):
        trainer.run()
    assert trainer.folder is not None
    found = trainer.folder.checkpoints.newest(CheckpointFacts)
    assert found is not None
    assert found[1].learner.updates == 12


def test_a_collapse_seen_at_the_very_end_keeps_the_model(tmp_path: Path) -> None:
    trainer = scripted(tmp_path, [0.3, 0.5, 0.5, 0.5, 0.1], "stop")
    assert trainer.run().collapsed
    assert trainer.folder is not None
    assert trainer.folder.weights_update() == 20


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "model": "troubled_models:FailingNet",
        "algorithm": "erm",
        "checkpoint_every": 0.0,
    }
    with pytest.raises(
        Diverged,
        match=r"became nan \(NaN or infinite for 16 of 16 images\): lower .*; what was saved before it is kept",
    ):
        carry_out(tmp_path, **settings)
    found = RunFolder(tmp_path).checkpoints.newest(CheckpointFacts)
    assert found is not None
    assert found[1].learner.updates == 4
    assert all(bool(torch.isfinite(value).all()) for value in found[0].values())
    assert RunFolder(tmp_path).result is None


def test_overflowed_weights_are_not_checkpointed(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="are no longer finite"):
        carry_out(tmp_path, algorithm="erm", lr=1e38, weight_decay=1e10, checkpoint_every=0.0)
    assert RunFolder(tmp_path).checkpoints.newest(CheckpointFacts) is None


def test_weights_that_overflow_in_the_last_update_are_not_published(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="logits are NaN or infinite for 24 of 24 images"):
        carry_out(tmp_path, algorithm="erm", lr=1e38, updates=1)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_loss_that_is_not_finite_is_reported_with_how_many_images() -> None:
    meter = Meter()
    meter.add(StepRecord(losses=torch.tensor([1.0, 2.0]), delta=torch.zeros(2)), 2)
    meter.add(StepRecord(losses=torch.tensor([1.0, torch.nan, torch.inf, 0.5]), delta=torch.zeros(4)), 4)
    with pytest.raises(Diverged, match="NaN or infinite for 2 of 4 images"):
        meter.fetch()


def test_an_average_whose_logits_are_not_finite_has_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not bad input: the same as of the weights themselves."""
    scores = Evaluator.scores

    def failing(self: Evaluator, model: nn.Module, size: int | None = None) -> Scores:
        if model is average.get("model"):
            raise NonFiniteLogits("the logits of the average")
        return scores(self, model, size)

    average: dict[str, nn.Module] = {}
    has_started = WeightAverage.has_started

    def seen(self: WeightAverage, updates: int) -> bool:
        average["model"] = self.model
        return has_started(self, updates)

    monkeypatch.setattr(Evaluator, "scores", failing)
    monkeypatch.setattr(WeightAverage, "has_started", seen)
    with pytest.raises(Diverged, match="the logits of the average"):
        carry_out(tmp_path, ema=0.5)


def test_finite_weights_pass() -> None:
    net = FailingNet()
    check_weights(net)
    net[1].bias.data[3] = torch.inf
    with pytest.raises(Diverged, match=r"'1.bias'"):
        check_weights(net)


def test_the_weight_average_is_evaluated_beside_the_weights(tmp_path: Path) -> None:
    final = carry_out(tmp_path, ema=0.5)
    weights, averaged = (RunFolder(tmp_path).weights(name) for name in ("model", "ema"))
    assert any(not torch.equal(weights[name], averaged[name]) for name in weights)
    assert final.ema.test.robust_loss != final.test.robust_loss
    assert final.ema.test.n == final.test.n


def test_an_average_of_decay_zero_equals_the_weights(tmp_path: Path) -> None:
    final = carry_out(tmp_path, ema=0.0, model="cnn-w4")
    weights, averaged = (RunFolder(tmp_path).weights(name) for name in ("model", "ema"))
    assert all(torch.equal(weights[name], averaged[name]) for name in weights)
    assert final.ema.test == final.test


def test_the_best_weights_are_chosen_on_the_validation_split(tmp_path: Path) -> None:
    carry_out(
        tmp_path, validation=40, eval_size=40, final_size=40, updates=60, algorithm="fast", lr=0.5, seed=3
    )
    records = list(RunFolder(tmp_path).history())
    by_validation = [record.validation.robust_accuracy for record in records]
    by_test = [record.test.robust_accuracy for record in records]
    chosen = records[by_validation.index(max(by_validation))].update
    assert RunFolder(tmp_path).weights_update("best") == chosen
    assert [r.update for r in records if r.best][-1] == chosen
    assert records[by_test.index(max(by_test))].update != chosen, "the test could not tell the two apart"


def test_without_validation_there_is_no_best(tmp_path: Path) -> None:
    carry_out(tmp_path)
    assert not (tmp_path / "best.safetensors").exists()
    assert not any(record.best for record in RunFolder(tmp_path).history())


def test_micro_batches_change_nothing_but_rounding(tmp_path: Path) -> None:
    carry_out(tmp_path / "whole")
    carry_out(tmp_path / "parts", micro_batch=5)
    whole, parts = (RunFolder(tmp_path / name).weights() for name in ("whole", "parts"))
    for name in whole:
        torch.testing.assert_close(whole[name], parts[name], rtol=1e-4, atol=1e-5)
    assert outcome(tmp_path / "whole")["weights"] != outcome(tmp_path / "parts")["weights"]
