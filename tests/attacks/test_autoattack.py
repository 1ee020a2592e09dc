"""The adapter to pyautoattack: seeded, leaves the process as it was, and says what it replaced."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freeat.attacks.autoattack import AutoAttack
from freeat.attacks.pgd import Pgd
from freeat.errors import InputError
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf

pytestmark = pytest.mark.peer
pytest.importorskip("pyautoattack")


@pytest.fixture(scope="module")
def few(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return batch[0][:16], batch[1][:16]


@pytest.mark.parametrize("ball", [L2(2.0), Linf(0.12)], ids=["l2", "linf"])
def test_equals_the_package_itself_and_is_no_weaker_than_pgd(
    ball: Ball, robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    from pyautoattack import AutoAttack as Theirs

    x, y = few
    rng = ImageRng(7, range(len(x)))
    ours = AutoAttack(parts=("apgd-ce", "apgd-t"))(robust_net, x, y, ball, rng)
    with torch.random.fork_rng():
        norm = "L2" if isinstance(ball, L2) else "Linf"
        adversary: Any = Theirs(
            robust_net, norm=norm, eps=ball.eps, seed=7, version="custom", attacks=["apgd-ce", "apgd-t"]
        )
        adversary.apgd.n_restarts = 1
        _, predicted = adversary.run_standard_evaluation(x.contiguous(), y, batch_size=len(x))
    assert torch.equal(ours.fooled, predicted != y)
    assert 0 < ours.fooled.sum() < len(x)
    pgd = Pgd(steps=20)(robust_net, x, y, ball, rng)
    assert ours.fooled.sum() >= pgd.fooled.sum() - 1


def test_the_seed_decides_the_draws(robust_net: nn.Module, few: tuple[Tensor, Tensor]) -> None:
    x, y = few

    def found(seed: int) -> Tensor:
        attack = AutoAttack(parts=("apgd-ce",))
        return attack(robust_net, x, y, Linf(0.2), ImageRng(seed, range(len(x)))).delta

    first = found(3)
    assert first.any()
    assert torch.equal(found(3), first)
    assert not torch.equal(found(4), first)


def test_global_random_state_and_trace_function_are_restored(
    robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    x, y = few
    before, trace = torch.get_rng_state(), sys.gettrace()
    AutoAttack(parts=("apgd-ce",))(robust_net, x, y, Linf(0.1), ImageRng(0, range(len(x))))
    assert torch.equal(torch.get_rng_state(), before)
    assert sys.gettrace() is trace


def test_notes_hold_version_parts_and_seed(robust_net: nn.Module, few: tuple[Tensor, Tensor]) -> None:
    x, y = few
    attacked = AutoAttack(parts=("apgd-dlr",))(robust_net, x, y, Linf(0.1), ImageRng(5, range(len(x))))
    assert attacked.notes == ("pyautoattack 0.2.0: apgd-dlr; seed 5",)


@pytest.mark.parametrize("classes", [2, 3])
def test_with_few_classes_the_margin_replaces_dlr_and_is_noted(
    classes: int, robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    x, y = few[0], few[1] % classes

    def first_classes(images: Tensor) -> Tensor:
        return robust_net(images)[:, :classes]

    parts = ("apgd-ce", "apgd-t", "fab-t")
    attacked = AutoAttack(parts=parts)(first_classes, x, y, Linf(0.1), ImageRng(0, range(len(x))))
    assert "apgd-ce, apgd-margin" in attacked.notes[0]
    assert attacked.notes[1:] == (
        f"apgd-t, fab-t: undefined with {classes} classes; APGD on the margin loss was used instead",
    )


def test_warnings_of_the_package_become_notes(
    few: tuple[Tensor, Tensor], robust_net: nn.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = few
    noise = torch.Generator().manual_seed(0)

    def random_net(images: Tensor) -> Tensor:
        return robust_net(images + 0.05 * torch.randn(images.shape, generator=noise))

    attacked = AutoAttack(parts=("apgd-ce",))(random_net, x, y, Linf(0.05), ImageRng(0, range(len(x))))
    assert "AutoAttack warns: it seems to be a randomized defense!" in attacked.notes
    assert capsys.readouterr().err == ""


def test_bad_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    x, y = few
    rng = ImageRng(0, range(len(x)))
    with pytest.raises(InputError, match="did you mean 'apgd-ce'"):
        AutoAttack(parts=("apgd-c",))
    with pytest.raises(InputError, match="at least one"):
        AutoAttack(parts=())
    with pytest.raises(InputError, match="box"):
        AutoAttack()(robust_net, x, y, Linf(0.1, None), rng)
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(InputError, match=r"pip install 'freeat\[autoattack\]'"):
        AutoAttack()(robust_net, x, y, Linf(0.1), rng)
