"""Whether the runs on a data set were run well enough for their comparisons to count."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from freeat.experiments.paper.labels import VANILLA

LEAST = {"l2": 0.8, "linf": 0.5}
"""The robust training accuracy that Vanilla-10 must reach: one that does not fit shows no overfitting."""

Row = Mapping[str, Any]


def judge_sufficiency(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each data set: how well Vanilla-10 fits, which rows are not above chance, and whether it counts.

    ``counts`` is null where Vanilla-10 is missing in a norm and nothing else decides. Rows that are read before the
    end of the training say nothing here.
    """
    rows = [row for table in tables for row in table["rows"] if row["at"] >= 1]
    datas = dict.fromkeys(row["data"] for row in rows)
    return [_judged(data, [row for row in rows if row["data"] == data]) for data in datas]


def _judged(data: str, rows: Sequence[Row]) -> dict[str, Any]:
    fits = [_fit(norm, least, rows) for norm, least in LEAST.items()]
    at_chance = dict.fromkeys((row["norm"], row["label"]) for row in rows if row["above_chance"] is False)
    return {
        "data": data,
        "counts": False if at_chance else _all(one["fits"] for one in fits),
        "vanilla": fits,
        "at_chance": [{"norm": norm, "label": label} for norm, label in at_chance],
    }


def _fit(norm: str, least: float, rows: Sequence[Row]) -> dict[str, Any]:
    """Vanilla-10 in one norm, on the augmented images as everywhere in the comparison."""
    wanted = (row for row in rows if (row["norm"], row["label"]) == (norm, VANILLA) and row["measured"])
    row = next(wanted, None)
    reached = row["measured"]["robust_train"]["mean"] if row else None
    fits = None if reached is None else reached >= least
    return {"norm": norm, "robust_train": reached, "least": least, "fits": fits}


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all hold: false as soon as one does not, else unknown as soon as one is."""
    known = list(verdicts)
    if False in known:
        return False
    return None if None in known else True
