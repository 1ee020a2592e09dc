"""What a data set needs for its comparisons to count."""

from typing import Any

import pytest

from freeat.experiments.paper.sufficiency import judge_sufficiency


def row(label: str, norm: str, train: float | None, **more: Any) -> dict[str, Any]:
    measured = None if train is None else {"robust_train": {"mean": train}}
    learnt = None if train is None else True
    about = {"data": "cifar10", "norm": norm, "label": label, "at": 1.0}
    return about | {"measured": measured, "above_chance": learnt} | more


def judged(*rows: dict[str, Any]) -> dict[str, Any]:
    (one,) = judge_sufficiency([{"rows": list(rows)}])
    return one


@pytest.mark.parametrize(
    ("l2", "linf", "counts"),
    [
        (0.80, 0.50, True),
        (0.79, 0.50, False),
        (0.80, 0.49, False),
        (0.80, None, None),
        (0.79, None, False),
    ],
)
def test_vanilla_must_fit_in_both_norms(l2: float, linf: float | None, counts: bool | None) -> None:
    one = judged(row("vanilla-10", "l2", l2), row("vanilla-10", "linf", linf), row("free-4", "l2", 0.3))
    assert one["counts"] is counts
    assert [fit["robust_train"] for fit in one["vanilla"]] == [l2, linf]


def test_every_algorithm_must_have_learnt() -> None:
    fitting = row("vanilla-10", "l2", 0.9), row("vanilla-10", "linf", 0.6)
    guessing = row("free-8", "linf", 0.1, above_chance=False)
    assert judged(*fitting)["counts"]
    found = judged(*fitting, guessing, guessing)
    assert found["counts"] is False
    assert found["at_chance"] == [{"norm": "linf", "label": "free-8"}]
    assert judged(*fitting, row("free-10", "l2", None))["counts"], "what was not measured is named elsewhere"


def test_each_data_set_is_judged_by_its_end() -> None:
    early = row("vanilla-10", "linf", 0.3, at=0.25, above_chance=False)
    other = [row("vanilla-10", norm, 0.9, data="svhn") for norm in ("l2", "linf")]
    found = judge_sufficiency([{"rows": [early]}, {"rows": other}])
    assert [(one["data"], one["counts"]) for one in found] == [("svhn", True)]
