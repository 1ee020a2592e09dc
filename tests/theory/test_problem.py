"""Constants are checked once, and a refusal says the value, the rule and the remedy."""

import math
import subprocess
import sys

import pytest

from freeat.errors import InputError
from freeat.theory import (
    Problem,
    absolute_step,
    fast_bound,
    free_bound,
    relative_step,
    vanilla_bound,
    weight_step,
)

GOOD = {"beta": 2.0, "c": 0.1, "L": 1.0, "L_w": 1.0, "eps": 0.5, "psi": 4.0, "b": 10, "n": 1000}


@pytest.mark.parametrize("name", ["beta", "c", "L", "L_w", "psi", "b", "n"])
@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan])
def test_constants_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"^{name} = {value!r} \(.*must be.*pass"):
        Problem(**{**GOOD, name: value})


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_radius_must_be_zero_or_positive(value: float) -> None:
    with pytest.raises(InputError, match="eps"):
        Problem(**{**GOOD, "eps": value})
    assert Problem(**{**GOOD, "eps": 0.0}).gain(1.0) == 0


def test_counts_are_whole_and_a_batch_fits() -> None:
    with pytest.raises(InputError, match="whole number"):
        Problem(**{**GOOD, "b": 1.5})
    with pytest.raises(InputError, match="b = 1001 exceeds n = 1000"):
        Problem(**{**GOOD, "b": 1001})
    with pytest.raises(InputError, match=r"m = 2\.5"):
        free_bound(Problem(**GOOD), T=10, alpha=1.0, m=2.5)
    with pytest.raises(InputError, match="T = 0"):
        vanilla_bound(Problem(**GOOD), T=0)


def test_psi_is_required_only_where_it_is_used() -> None:
    p = Problem(**{**GOOD, "psi": None})
    assert vanilla_bound(p, T=10) == vanilla_bound(Problem(**GOOD), T=10)
    with pytest.raises(InputError, match="psi is missing"):
        fast_bound(p, T=10, alpha=1.0)


def test_extreme_constants_do_not_overflow() -> None:
    for edge in (1e-60, 1e60):
        p = Problem(beta=edge, c=edge, L=edge, L_w=edge, eps=edge, psi=edge, b=1, n=10**59)
        for m in (1, 7, 10**6):
            assert math.isfinite(free_bound(p, T=10**9, alpha=edge, m=m).log_bound)
        assert math.isfinite(fast_bound(p, T=10**9, alpha=edge).log_bound)
        assert math.isfinite(vanilla_bound(p, T=10**9).log_bound)


def test_attack_steps_convert_both_ways() -> None:
    assert relative_step(64 / 255, 128 / 255) == 0.5
    assert absolute_step(relative_step(2 / 255, 8 / 255), 8 / 255) == pytest.approx(2 / 255, rel=1e-15)
    with pytest.raises(InputError, match="eps"):
        relative_step(0.1, 0.0)


def test_weight_steps() -> None:
    assert weight_step(0.6, 3) == pytest.approx(0.2)
    assert weight_step(0.6, 3, m=4) == pytest.approx(0.05)
    with pytest.raises(InputError, match="t = 0"):
        weight_step(0.6, 0)


def test_theory_imports_no_torch_and_no_numpy() -> None:
    code = "import sys, freeat.theory; print({'torch', 'numpy'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
