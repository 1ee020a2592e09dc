"""Free under the learning-rate schedule of the FastAT benchmark, and under the same schedule by weight updates.

    python benchmarks/fastat_schedule.py --out results/fastat-schedule [--train-size 1024] [--seeds 3]

FastAT's one-cycle schedule has as many steps as there are epochs, and Free takes one step per pass over the data. A run
of 200 epochs passes over the data 200/m times, so with m = 4 its learning rate ends at step 50 of 200, still rising.
Both sides here share recipe, seeds, data and weight updates; only the schedule differs. CIFAR-10, Linf 8/255, one-cycle
up to 0.1, label smoothing 0.4, EMA: small-scale. A seed that is stored is not trained again.
"""

import argparse
import json
import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import freeat
from freeat.compute.machine import provenance
from freeat.evaluation.matched import mean_interval
from freeat.learner.schedules import Clock, OneCycle, Schedule
from freeat.models import build
from freeat.reports.plots import save_figure, series_style, styled

EPOCHS, M, PEAK, SMOOTHING = 200, 4, 0.1, 0.4
FULL_SCALE_UPDATES, FULL_SCALE_DECAY = 76_600, 0.9995
"""Weight updates and EMA decay of the benchmark: 200 epochs of 383 batches (49,000 images). Here the decay
forgets over the same part of the training."""


@dataclass(frozen=True, kw_only=True)
class ByDataEpoch:
    """One-cycle over as many steps as there are epochs, one step per pass over the data, as FastAT runs Free."""

    lr: float
    batches_per_epoch: int

    def __call__(self, clock: Clock) -> float:
        passes = (clock.batch - 1) // self.batches_per_epoch
        return OneCycle(lr=self.lr)(Clock(update=passes, batch=clock.batch, total=EPOCHS))


def train(schedule: Schedule, data: freeat.DataSet, options: argparse.Namespace, seed: int) -> dict:
    """Robust accuracies of the last weights and of their average, in percent, and the last learning rate."""
    torch.manual_seed(seed)
    model = build(options.model, classes=10, shape=data.shape)
    updates = EPOCHS * -(-options.train_size // 128)
    trained = freeat.train(
        model,
        data,
        algorithm=freeat.Free(m=M, ball=freeat.Linf(8 / 255), start="zero"),
        augment="crop-flip",
        updates=updates,
        schedule=schedule,
        label_smoothing=SMOOTHING,
        weight_decay=5e-4,
        ema=FULL_SCALE_DECAY ** (FULL_SCALE_UPDATES / updates),
        attack=freeat.Pgd(steps=10),
        eval_every=updates // 12,
        seed=seed,
        precision=options.precision,
    )
    last = trained.result
    return {
        "seed": seed,
        "last_lr": last.lr,
        "weights": {
            name: {
                "robust_train": 100 * scores.train.robust_accuracy,
                "robust_test": 100 * scores.test.robust_accuracy,
                "clean_test": 100 * scores.test.clean_accuracy,
            }
            for name, scores in (("last", last), ("ema", last.ema))
        },
        "curve": [
            [r.update, r.lr, r.test.robust_accuracy, r.ema.test.robust_accuracy] for r in trained.history
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the numbers")
    parser.add_argument("--train-size", type=int, default=1024, help="training images, a multiple of 128")
    parser.add_argument("--test-size", type=int, default=2000, help="test images")
    parser.add_argument("--model", default="resnet18-w16-s2")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    found = freeat.load_data("cifar10")
    data = replace(
        found, train=found.train.subset(options.train_size), test=found.test.sample(options.test_size)
    )
    per_epoch = options.train_size // 128
    schedules = {
        "as FastAT runs it": ByDataEpoch(lr=PEAK, batches_per_epoch=per_epoch),
        "by weight updates": OneCycle(lr=PEAK),
    }
    file = options.out / "schedule.json"
    rows = json.loads(file.read_text())["rows"] if file.is_file() else {name: [] for name in schedules}
    command = shlex.join(["python", "benchmarks/fastat_schedule.py", *sys.argv[1:]])
    facts = asdict(provenance(torch.device("cpu"))) | {"command": command}
    settings = {key: str(value) for key, value in vars(options).items() if key != "out"}
    for seed in range(options.seeds):
        for name, schedule in schedules.items():
            if all(row["seed"] != seed for row in rows[name]):
                rows[name].append(train(schedule, data, options, seed))
                document = {"format": 1, "settings": settings, "rows": rows, **facts}
                file.write_text(json.dumps(document, indent=1) + "\n")
    print(table(rows))
    draw(rows, options.out / "schedule.png")


def table(rows: dict[str, list[dict]]) -> str:
    """Means over seeds with Student's 95 % intervals, as Markdown."""
    keys = ("robust_train", "robust_test", "clean_test")
    lines = ["| schedule | last rate | weights | robust train % | robust test % | clean test % |"]
    lines.append("|---|---:|---|---:|---:|---:|")
    for name, runs in rows.items():
        for weights in ("last", "ema"):
            means = [mean_interval(np.array([run["weights"][weights][key] for run in runs])) for key in keys]
            shown = [
                f"{one.value:.1f}" + (f" [{one.low:.1f}, {one.high:.1f}]" if one.low else "") for one in means
            ]
            lines.append(" | ".join([f"| {name}", f"{runs[0]['last_lr']:.2g}", weights, *shown]) + " |")
    return "\n".join(lines)


def draw(rows: dict[str, list[dict]], path: Path) -> None:
    """The learning rate, and robust test accuracy of the weights and of their average, over the weight updates."""
    with styled():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
        for index, (name, runs) in enumerate(rows.items()):
            style = series_style(index)
            points = {int(row[0]): row for row in np.mean([run["curve"] for run in runs], axis=0)}
            updates, rates, *robust = np.array(list(points.values())).T  # the last: the final evaluation
            left.plot(updates[1:], rates[1:], label=name, **style)  # no update, no rate
            for values, weights, line in zip(robust, ("last weights", "EMA"), ("--", "-"), strict=True):
                right.plot(updates, 100 * values, label=f"{name}, {weights}", **style | {"linestyle": line})
        left.set(xlabel="weight updates", ylabel="learning rate", ylim=(0, None))
        right.set(xlabel="weight updates", ylabel="robust test accuracy, %")
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        save_figure(figure, path)


if __name__ == "__main__":
    main()
