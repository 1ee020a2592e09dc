"""The embedded data set: scikit-learn's 1797 real handwritten digits, 8×8, which need no download."""

import numpy as np

from freeat.data.order import stratified_rows
from freeat.data.readers.arrays import Arrays

TEST_IMAGES = 597
"""Leaves 1200 for training. The split is fixed: another seed must not give another data set."""


def read_digits() -> Arrays:
    """The digits with a fixed stratified split; 17 grey levels v are stored as v/16, exact in float32."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = (bunch.images / 16).astype(np.float32)[..., None]
    y = bunch.target.astype(np.int64)
    test = stratified_rows(y, np.arange(len(y)), TEST_IMAGES, seed=0, purpose="digits")
    train = np.setdiff1d(np.arange(len(y)), test)
    return Arrays(
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=tuple("0123456789"),
        notes=(f"digits: a fixed stratified split, {len(train)} train and {len(test)} test.",),
    )
