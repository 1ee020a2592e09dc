"""Stored evaluations that were never made, with numbers of the test's choosing."""

from typing import Any

from freeat.compute import Cost
from freeat.compute.machine import Machine
from freeat.runs.results import StoredEvaluation
from made_records import make_classes


def stored_evaluation(model: str, eps: float, **more: Any) -> StoredEvaluation:
    robust = 0.9 - eps
    facts: dict[str, Any] = {
        "identity": {},
        "model": model,
        "weights": "w" * 64,
        "data": "digits",
        "data_digest": "d" * 64,
        "split": "test",
        "attack": "pgd-10",
        "iterate": "worst",
        "settings": {},
        "black_box": False,
        "norm": "linf",
        "eps": eps,
        "seed": 0,
        "batch_size": 256,
        "device": "cpu",
        "threads": 1,
        "versions": {},
        "commit": None,
        "machine": Machine(system="Linux", processor="one", cores=1),
        "command": "freeat",
        "n": 100,
        "population": 100,
        "classes": 10,
        "clean_accuracy": 0.9,
        "clean_interval": (0.8, 1.0),
        "robust_accuracy": robust,
        "robust_interval": (robust - 0.1, robust + 0.1),
        "balanced_robust_accuracy": robust,
        "worst_class_robust_accuracy": robust,
        "per_class": make_classes(*[10] * 10),
        "cost": Cost(),
        "misclassified": (),
        "fooled": (),
        "wrong_when_clean": 0,
        "wrong_under_attack": 0,
        "turned_wrong": 0,
        "seconds": 1.0,
    }
    return StoredEvaluation(**(facts | more))
