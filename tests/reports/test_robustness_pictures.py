"""Robust accuracy against the radius, adversarial examples, and the table: files that open, words that are true."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from freeat.errors import InputError
from freeat.reports.pictures import draw_examples
from freeat.reports.radius import draw_radii
from freeat.reports.robustness import robustness_lines


def cell(model: str, eps: float, **more: Any) -> dict[str, Any]:
    robust = 0.9 - eps
    return {
        "model": model,
        "attack": "pgd-10",
        "verdict": "worst",
        "norm": "linf",
        "split": "test",
        "eps": eps,
        "n": 100,
        "clean_accuracy": 0.9,
        "robust_accuracy": robust,
        "robust_interval": [robust - 0.1, robust + 0.1],
        "queries": None,
        "seconds": 1.0,
        "notes": [],
    } | more


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_a_curve_for_every_model(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"radii.{ending}"
    cells = [
        cell(model, k / 255, split=split) for model in "ab" for k in (1, 5, 9) for split in ("train", "test")
    ]
    draw_radii(path, cells, title="both")
    assert path.stat().st_size > 3000
    if ending == "png":
        with Image.open(path) as picture:
            assert picture.width > picture.height
    with pytest.raises(InputError, match="no measurements"):
        draw_radii(path, [])


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_examples_in_any_number_of_channels(channels: int, tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    n = 5
    examples = {
        "x": g.random((n, channels, 8, 8), np.float32),
        "delta": np.zeros((n, channels, 8, 8), np.float32),
        "y": np.arange(n) % 3,
        "predicted": np.zeros(n, np.int64),
        "clean_correct": np.ones(n, bool),
        "classes": np.array(["cat", "dog", "frog"]),
    }
    draw_examples(tmp_path / "e.png", examples, rows=3, title="pgd-10")
    with Image.open(tmp_path / "e.png") as picture:
        assert picture.height > picture.width
    empty = {name: value[:0] for name, value in examples.items()}
    with pytest.raises(InputError, match="no images"):
        draw_examples(tmp_path / "none.png", empty)


def test_the_table_says_everything_once() -> None:
    report = {
        "cells": [
            cell("net", 8 / 255, notes=["DLR is undefined with 3 classes"]),
            cell(
                "net",
                8 / 255,
                attack="square",
                notes=["DLR is undefined with 3 classes"],
                queries={"mean": 123.4},
            ),
        ],
        "gaps": [
            {
                "model": "net",
                "attack": "pgd-10",
                "norm": "linf",
                "eps": 8 / 255,
                "value": 0.05,
                "low": -0.01,
                "high": 0.1,
            }
        ],
        "checks": [
            {"name": "a", "passed": True, "sentence": "All is well."},
            {"name": "b", "passed": False, "sentence": "gradients may be masked."},
        ],
    }
    text = "\n".join(robustness_lines(report))
    assert "8/255" in text
    assert "86.9" in text
    assert "[76.9, 96.9]" in text
    assert "123" in text
    assert "gap of net (pgd-10, linf 8/255): 5.0 points [-1.0, 10.0]" in text
    assert text.count("note: DLR") == 1
    assert "ok: All is well." in text
    assert "WARNING: gradients may be masked." in text
    assert "1 honesty checks failed" in text
