"""Ready-made comparisons."""

from typing import Any

DEMO: dict[str, Any] = {
    "algorithms": "erm,vanilla-10,fast,free-4,trades-10,free-trades-4",
    "seeds": "3",
    "data": "digits",
    "train_size": 600,
    "model": "cnn-w16",
    "norm": "l2",
    "eps": 0.6,
    "epochs": 75,
    "threads": 1,
    "eval_every": 40,
    "eval_size": 600,
}
"""The paper's effect on scikit-learn's handwritten digits, in minutes on two cores."""

PRESETS = {"demo": DEMO}
