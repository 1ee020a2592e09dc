"""A small store of every kind of result, made by the commands themselves, and one whose every name is hostile."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from freeat.cli.main import run as freeat
from freeat.files.documents import plain
from invented_claims import whole_figure, whole_table
from made_records import make_provenance
from small_runs import carry_out

HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror=window.hurt=2>"
HOSTILE_FILE = "<img src=x onerror=window.hurt=3>"
STUDY = (
    "--model mlp-w8-softplus --algorithms vanilla-2,fast,free-4 --updates 8 --batch-size 10 --replaced 2 --seeds 2 "
    "--probes 6 --attack-steps 2 --eval-size 10 --probe-times 2 --threads 1 --device cpu --train-size 20,30 --sweep n "
    "--theorem"
)


def make_store(folder: Path) -> Path:
    """Runs of two algorithms, seeds and sizes, one evaluated again; attacks, transfers, examples; a study."""
    for algorithm in ("vanilla-2", "free-4"):
        for seed in (0, 1):
            for size in (40, 60):
                path = folder / "runs" / f"{algorithm}-{size}" / f"seed-{seed}"
                carry_out(path, algorithm=algorithm, seed=seed, train_size=size, attack="pgd-2", eval_size=32)
    first, second = (str(folder / "runs" / name / "seed-0") for name in ("free-4-60", "vanilla-2-60"))
    for command in (
        f"evaluate {first} --attack pgd-3 --split both -n 20",
        f"evaluate {first} --attack pgd-2 --attack square-20 --eps 0.2,0.5 -n 20",
        f"evaluate {first} --attack pgd-2 --eps 0.2 -n 20 --examples",
        f"transfer a={first} b={second} --to a={first} b={second} -n 20",
        f"stability {STUDY} --out {folder / 'study'}",
    ):
        assert freeat(shlex.split(command)) == 0, command
    return folder


def make_hostile(store: Path, folder: Path) -> Path:
    """The same store with a hostile text wherever a user's text can stand."""
    shutil.copytree(store, folder)
    for path in folder.rglob("*.json"):
        path.write_text(json.dumps(_poisoned(json.loads(path.read_text()))))
    runs = folder / "runs" / "free-4-60"
    runs.rename(folder / "runs" / HOSTILE_FILE)
    for path in folder.rglob("*.npz"):
        path.rename(path.with_name(f"{HOSTILE_FILE}.npz"))
    return folder


TEXTS = ("model", "command", "commit", "processor", "caveat", "source")


def _poisoned(value: Any) -> Any:
    if isinstance(value, list):
        return [_poisoned(one) for one in value]
    if not isinstance(value, dict):
        return value
    poisoned = {
        key: HOSTILE if key in TEXTS and one is not None else _poisoned(one) for key, one in value.items()
    }
    if "digest" in value:  # the facts about the data of a run
        poisoned |= {"name": HOSTILE, "classes": [HOSTILE], "notes": [HOSTILE]}
    if "sentence" in value:
        poisoned["sentence"] = HOSTILE
    return poisoned


def points(*values: tuple[float, float, float]) -> list[dict[str, Any]]:
    """The points of a series from their means and the ends of their intervals."""
    errors = {"std": 0.01, "seeds": 3, "image_error": 0.01}
    return [{"mean": mean, "low": low, "high": high, **errors} for mean, low, high in values]


def reproduction() -> dict[str, Any]:
    """A reproduction with a table, a figure of every kind and claims."""
    measured = {"mean": 0.31, "std": 0.01, "low": 0.3, "high": 0.32, "seeds": 3, "image_error": 0.01}
    norms = {
        "label": "free-4",
        "updates": [5, 10],
        "bins": [-1.0, -0.9],
        "counts": [[3, 1], [0, 2]],
        "smallest": [0.1, 0.1],
    }
    curve = {
        "label": "free-4",
        "epochs": [1, 2],
        "updates": [5, 10],
        "train": [0.4, 0.3],
        "test": [0.5, 0.45],
    }
    series = {
        "curves": curve | {"points": points((0.1, 0.0, 0.2), (0.15, 0.1, 0.2))},
        "radius": {
            "label": "free-4",
            "eps": [0.1, 0.2],
            "points": points((0.5, 0.4, 0.6), (0.4, 0.3, 0.5)),
        },
        "size": {"label": "free-4", "n": [10, 100], "points": points((0.3, 0.2, 0.4), (0.1, 0.05, 0.2))}
        | {"exponent": {"value": 0.5, "low": 0.4, "high": 0.6}},
        "norms": norms,
    }
    panel = {"data": "cifar10", "norm": "l2", "panel": ""}
    row = {"data": "cifar10", "norm": "l2", "label": "free-4", "at": 1.0, "runs": []}
    claim = {"id": "gap", "sentence": "Free closes the gap.", "where": ["table-1"], "ours": False}
    claim |= {"statistic": "gap of Vanilla minus Free's", "unit": "points"}
    verdict = {
        "panel": "cifar10 l2",
        "statistic": 0.1,
        "low": 0.05,
        "high": 0.15,
        "seeds": 3,
        "detail": "as printed",
    }
    return {
        "format": 1,
        "scale": "hour",
        "experiments": ["table-1"],
        "provenance": plain(make_provenance(command="freeat reproduce table-1")),
        "commits": ["def", "012"],
        "left_out": [{"what": "table-4", "reason": "too long"}],
        "failures": [{"task": "train", "reason": "no memory"}],
        "machines": [],
        "training_seconds": 2.0,
        "notes": [],
        "sufficiency": [],
        "measurements": {},
        "tables": [
            whole_table(
                {
                    "name": "table-1",
                    "title": "CIFAR",
                    "columns": ["robust_gap"],
                    "rows": [
                        row
                        | {"measured": {"robust_gap": measured}, "plain": None}
                        | {"published": {"robust_gap": {"value": 33.1, "std": 0.2, "recomputed": 33.2}}},
                        row | {"measured": None, "plain": None, "published": None},
                    ],
                }
            )
        ],
        "figures": [
            whole_figure(
                {"name": f"figure-{kind}", "title": kind, "kind": kind, "panels": [panel | {"series": [one]}]}
            )
            for kind, one in series.items()
        ],
        "claims": [
            claim
            | {
                "published_primary": verdict | {"verdict": "confirmed", "panel": "mean over 1 panel"},
                "measured_primary": verdict | {"verdict": "undecided", "panel": "mean over 2 panels"},
                "published": [verdict | {"verdict": "confirmed"}],
                "measured": [verdict | {"verdict": "refuted"}, verdict | {"verdict": "undecided"}],
            }
        ],
        "runs": {
            str(n): {"name": f"free-4 {n}", "spec": {"model": "cnn", "algorithm": "free-4", "train_size": n}}
            | {"seconds": 1.0, "chosen": None, "data": None, "notes": []}
            for n in (40, 60)
        },
    }
