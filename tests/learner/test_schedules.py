"""Learning rates by update and by batch."""

from collections.abc import Callable

import pytest
import torch

from freeat import Free
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.learner.schedules import (
    SCHEDULES,
    Clock,
    Cosine,
    Cyclic,
    OneCycle,
    Piecewise,
    Schedule,
    Vanishing,
    make_schedule,
)
from problems import BALLS, images, smooth_net


def rates(schedule: Schedule, total: int) -> list[float]:
    return [schedule(Clock(update=t, batch=t + 1, total=total)) for t in range(total)]


@pytest.mark.parametrize("total", [8, 10, 7])
def test_piecewise_divides_by_ten_at_half_and_three_quarters(total: int) -> None:
    expected = [0.1 if 2 * t < total else 0.01 if 4 * t < 3 * total else 0.001 for t in range(total)]
    assert rates(Piecewise(lr=0.1), total) == pytest.approx(expected, rel=1e-12)


def test_cyclic_rises_to_its_peak_and_falls_to_zero() -> None:
    assert rates(Cyclic(lr=1.0, peak=0.4), 10) == pytest.approx(
        [1 / 4, 2 / 4, 3 / 4, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0], abs=1e-12
    )


def test_vanishing_is_c_over_m_t_in_batches() -> None:
    assert Vanishing(c=0.6, m=4)(Clock(update=17, batch=5, total=0)) == pytest.approx(0.6 / 20)


def test_free_sets_the_rate_at_every_update_and_vanishing_keeps_it_within_a_batch() -> None:
    def seen(schedule: Schedule) -> list[float]:
        net = smooth_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=123.0)
        found: list[float] = []
        optimizer.register_step_pre_hook(lambda opt, *_: found.append(opt.param_groups[0]["lr"]))
        learner = Learner(net, optimizer, total_updates=6, schedule=schedule)
        for _ in range(2):
            Free(ball=BALLS["l2"], m=3).step(learner, *images(0, 4))
        return found

    assert seen(Piecewise(lr=0.1, milestones=(1 / 3, 2 / 3))) == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )
    assert seen(Vanishing(c=0.6, m=3)) == pytest.approx([0.2] * 3 + [0.1] * 3)


def test_schedules_by_name() -> None:
    clock = Clock(update=0, batch=2, total=10)
    found = {name: make_schedule(name, 0.1, 4)(clock) for name in SCHEDULES}
    expected = {"piecewise": 0.1, "constant": 0.1, "cyclic": 0.025, "vanishing": 0.1 / 8}
    assert found == pytest.approx(expected | {"cosine": 0.1, "one-cycle": 0.1 / 25})
    with pytest.raises(InputError, match="did you mean 'cyclic'"):
        make_schedule("cycllc", 0.1, 1)
    with pytest.raises(InputError, match="must be positive"):
        make_schedule("constant", 0.0, 1)


@pytest.mark.parametrize("total", [2, 7, 10, 200])
def test_cosine_and_one_cycle_have_the_rates_of_torch(total: int) -> None:
    def of_torch(
        make: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler],
    ) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
        schedule, found = make(optimizer), []
        for _ in range(total):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if len(found) < total:
                schedule.step()
        return found

    lr = torch.optim.lr_scheduler
    assert rates(Cosine(lr=0.1), total) == pytest.approx(
        of_torch(lambda optimizer: lr.CosineAnnealingLR(optimizer, total)), rel=1e-9
    )
    if 0.3 * total > 1:  # torch divides by zero below
        assert rates(OneCycle(lr=0.1), total) == pytest.approx(
            of_torch(lambda optimizer: lr.OneCycleLR(optimizer, 0.1, total_steps=total)), rel=1e-9
        )


@pytest.mark.parametrize("total", [1, 2, 3])
def test_one_cycle_of_a_few_updates_stays_below_its_peak_and_ends_low(total: int) -> None:
    found = rates(OneCycle(lr=0.1), total)
    assert all(0 < rate <= 0.1 for rate in found)
    assert found[-1] == pytest.approx(4e-7)


@pytest.mark.parametrize("name", ["piecewise", "cyclic", "cosine", "one-cycle"])
def test_a_schedule_by_share_of_the_budget_needs_one(name: str) -> None:
    net = smooth_net()
    learner = Learner(net, torch.optim.SGD(net.parameters(), lr=0.1), schedule=make_schedule(name, 0.1, 1))
    with pytest.raises(InputError, match="give total_updates"):
        Free(ball=BALLS["l2"], m=1).step(learner, *images(0, 4))
