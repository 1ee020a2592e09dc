"""AutoAttack: its parts in turn on the survivors, pyautoattack's own run as the reference, and what a result says."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freeat.attacks.apgd import Apgd
from freeat.attacks.autoattack import PARTS, AutoAttack, Fab, PyAutoAttack
from freeat.attacks.pgd import Pgd
from freeat.attacks.square import Square
from freeat.errors import InputError
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf

BALLS = pytest.mark.parametrize("ball", [L2(2.0), Linf(0.12)], ids=["l2", "linf"])
BUILT_IN = ("apgd-ce", "apgd-dlr", "square")


@pytest.fixture(scope="module")
def few(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return batch[0][:16], batch[1][:16]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Square attacks of 60 queries in the place of 5000, here and in pyautoattack."""
    monkeypatch.setitem(PARTS, "square", lambda precision: Square(queries=60))
    package = pytest.importorskip("pyautoattack")

    class Hasty(package.AutoAttack):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.square.n_queries = 60

    monkeypatch.setattr(package, "AutoAttack", Hasty)


@pytest.fixture
def short_fab(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAB of 5 steps in the place of 100."""
    package = pytest.importorskip("pyautoattack.fab_pt")

    class Hasty(package.FABAttack_PT):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.n_iter = 5

    monkeypatch.setattr(package, "FABAttack_PT", Hasty)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.usefixtures("short")
@BALLS
def test_robust_accuracy_is_that_of_pyautoattack(
    ball: Ball, robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    x, y = (part[:48] for part in batch)
    rng = ImageRng(7, range(len(x)))
    ours = AutoAttack()(robust_net, x, y, ball, rng)
    theirs = PyAutoAttack()(robust_net, x, y, ball, rng)
    assert 0 < int(theirs.fooled.sum()) < len(x)
    assert abs(int(ours.fooled.sum()) - int(theirs.fooled.sum())) <= 1
    assert torch.equal(robust_net(ball.apply(x, ours.delta)).argmax(-1) != y, ours.fooled)
    assert ours.fooled.sum() >= Pgd(steps=20)(robust_net, x, y, ball, rng).fooled.sum()


@pytest.mark.peer
@BALLS
def test_the_reference_is_the_package_itself(
    ball: Ball, robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    theirs = pytest.importorskip("pyautoattack").AutoAttack
    x, y = few
    ours = PyAutoAttack(part="apgd-ce")(robust_net, x, y, ball, ImageRng(7, range(len(x))))
    with torch.random.fork_rng():
        norm = "L2" if isinstance(ball, L2) else "Linf"
        adversary: Any = theirs(
            robust_net, norm=norm, eps=ball.eps, seed=7, version="custom", attacks=["apgd-ce"]
        )
        adversary.apgd.n_restarts = 1
        _, predicted = adversary.run_standard_evaluation(x.contiguous(), y, batch_size=len(x))
    assert torch.equal(ours.fooled, predicted != y)
    assert 0 < ours.fooled.sum() < len(x)
    assert ours.notes == ("pyautoattack 0.2.0: apgd-ce; seed 7",)


@BALLS
def test_each_part_attacks_the_survivors_of_those_before(
    ball: Ball, robust_net: nn.Module, few: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = few
    rng = ImageRng(0, range(len(x)))
    parts = {
        "apgd-ce": Apgd(steps=5),
        "apgd-dlr": Apgd(loss="dlr", steps=20),
        "square": Square(queries=40),
    }
    for name, part in parts.items():
        monkeypatch.setitem(PARTS, name, lambda precision, part=part: part)
    together = AutoAttack(parts=BUILT_IN)(robust_net, x, y, ball, rng)
    alone = [part(robust_net, x, y, ball, rng) for part in parts.values()]
    assert torch.equal(together.fooled, torch.stack([found.fooled for found in alone]).any(0))
    first = alone[0].fooled
    assert torch.equal(together.delta[first], alone[0].delta[first]), "kept is the first that fools"
    assert together.cost.forward_passes < sum(found.cost.forward_passes for found in alone)
    assert (together.delta[~together.fooled] != 0).flatten(1).any(1).all(), (
        "what could not be fooled has a δ too"
    )
    assert together.notes == ("apgd-ce, apgd-dlr, square; seed 0",)
    with_loss = AutoAttack(parts=BUILT_IN)(robust_net, x, y, ball, rng, with_loss=True)
    assert torch.equal(with_loss.fooled, together.fooled)
    assert with_loss.loss is not None
    for found in alone:
        reached = nn.functional.cross_entropy(robust_net(ball.apply(x, found.delta)), y, reduction="none")
        assert (with_loss.loss[~found.fooled] >= reached[~found.fooled] - 1e-5).all()


@pytest.mark.peer
@pytest.mark.usefixtures("short", "short_fab")
def test_draws_do_not_depend_on_the_batch(robust_net: nn.Module, few: tuple[Tensor, Tensor]) -> None:
    x, y = few
    ball = Linf(0.12)
    rows = [11, 3, 8, 0]
    attack = AutoAttack(parts=("apgd-ce", "fab-t", "square"))
    whole = attack(robust_net, x, y, ball, ImageRng(0, range(len(x))))
    part = attack(robust_net, x[rows], y[rows], ball, ImageRng(0, rows))
    assert torch.equal(part.fooled, whole.fooled[rows])


@pytest.mark.peer
@pytest.mark.usefixtures("short_fab")
def test_fab_draws_nothing_and_is_confirmed_in_fp32(
    robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    x, y = few
    ball = L2(3.0)
    found = Fab()(robust_net, x, y, ball, ImageRng(0, range(len(x))))
    assert torch.equal(found.delta, Fab()(robust_net, x, y, ball, ImageRng(1, range(len(x)))).delta)
    assert found.fooled[robust_net(x).argmax(-1) == y].any()
    rough = Fab(precision="bf16")(robust_net, x, y, ball, ImageRng(0, range(len(x))))
    assert torch.equal(robust_net(ball.apply(x, rough.delta)).argmax(-1) != y, rough.fooled)
    assert abs(int(found.fooled.sum()) - int(rough.fooled.sum())) <= 1
    assert rough.cost.gradient_evaluations > 0
    assert rough.cost.forward_passes > 0


@pytest.mark.peer
@pytest.mark.usefixtures("short_fab")
def test_global_random_state_and_trace_function_are_restored(
    robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    pytest.importorskip("pyautoattack")
    x, y = few
    before, trace = torch.get_rng_state(), sys.gettrace()
    for attack in (PyAutoAttack(part="apgd-ce"), Fab(targeted=False)):
        attack(robust_net, x[:4], y[:4], Linf(0.1), ImageRng(0, range(4)))
        assert torch.equal(torch.get_rng_state(), before)
        assert sys.gettrace() is trace


@pytest.mark.peer
@pytest.mark.usefixtures("short", "short_fab")
@pytest.mark.parametrize("classes", [2, 3])
def test_with_few_classes_the_margin_replaces_dlr_and_is_noted(
    classes: int, robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    x, y = few[0][:6], few[1][:6] % classes

    def first_classes(images: Tensor) -> Tensor:
        return robust_net(images)[:, :classes]

    rng = ImageRng(0, range(len(x)))
    attacked = AutoAttack()(first_classes, x, y, Linf(0.02), rng)
    instead = "the targeted DLR loss is undefined with {} classes; the targeted margin was used instead"
    assert attacked.notes == (
        "apgd-ce, apgd-t, fab-t, square; seed 0; FAB by pyautoattack 0.2.0",
        instead.format(classes),
    )
    with pytest.raises(InputError, match="use the built-in autoattack"):
        PyAutoAttack()(first_classes, x, y, Linf(0.02), rng)


@pytest.mark.peer
def test_warnings_of_the_package_become_notes(
    few: tuple[Tensor, Tensor], robust_net: nn.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyautoattack")
    x, y = few
    noise = torch.Generator().manual_seed(0)

    def random_net(images: Tensor) -> Tensor:
        return robust_net(images + 0.05 * torch.randn(images.shape, generator=noise))

    attack = PyAutoAttack(part="apgd-ce")
    attacked = attack(random_net, x, y, Linf(0.05), ImageRng(0, range(len(x))))
    assert "AutoAttack warns: it seems to be a randomized defense!" in attacked.notes
    assert capsys.readouterr().err == ""


def test_without_the_package_only_fab_is_missing_and_it_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, robust_net: nn.Module, few: tuple[Tensor, Tensor]
) -> None:
    x, y = few
    rng = ImageRng(0, range(len(x)))
    monkeypatch.setitem(sys.modules, "pyautoattack", None)

    def never(images: Tensor) -> Tensor:
        raise AssertionError("nothing is computed before")

    for attack in (AutoAttack(), Fab(), PyAutoAttack()):
        with pytest.raises(
            InputError, match=r"pip install 'freeat\[autoattack\]', or run AutoAttack without"
        ):
            attack(never, x, y, Linf(0.1), rng)
    monkeypatch.setitem(PARTS, "square", lambda precision: Square(queries=5))
    found = AutoAttack(parts=("apgd-ce", "square"))(robust_net, x, y, Linf(0.12), rng)
    assert found.fooled.any()


def test_bad_settings_are_refused(robust_net: nn.Module, few: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(InputError, match="did you mean 'apgd-ce'"):
        AutoAttack(parts=("apgd-c", "square"))
    for parts in ((), ("square",)):
        with pytest.raises(InputError, match="two or more"):
            AutoAttack(parts=parts)
    for wrong in (AutoAttack, Fab):
        with pytest.raises(InputError, match="precision"):
            wrong(precision="fp8")
    with pytest.raises(InputError, match="unknown part"):
        PyAutoAttack(part="apgd")


@pytest.mark.peer
def test_the_package_needs_the_box_of_images(robust_net: nn.Module, few: tuple[Tensor, Tensor]) -> None:
    pytest.importorskip("pyautoattack")
    x, y = few
    with pytest.raises(InputError, match="box"):
        Fab()(robust_net, x, y, Linf(0.1, None), ImageRng(0, range(len(x))))
