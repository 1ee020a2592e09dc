"""Attacks by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from freeat.attacks.apgd import APGD_LOSSES, Apgd
from freeat.attacks.autoattack import PARTS, STANDARD, AutoAttack, Fab, PyAutoAttack
from freeat.attacks.pgd import ITERATES, Pgd
from freeat.attacks.registry import EXAMPLES, parse_attack
from freeat.attacks.result import Attack, AttackResult
from freeat.attacks.square import Square
from freeat.errors import InputError
from freeat.objectives import LOSS_NAMES
from freeat.rng import ImageRng
from freeat.threat import STARTS, Linf
from problems import images, smooth_net

MEANT: dict[str, Attack] = {
    "fgsm": Pgd(steps=1, start="zero"),
    "fgsm-cw": Pgd(steps=1, start="zero", loss="margin"),
    "pgd": Pgd(steps=10),
    "pgd-10": Pgd(steps=10),
    "PGD_50_10": Pgd(steps=50, restarts=10),
    "pgd-cw-20": Pgd(steps=20, loss="margin"),
    "pgd-dlr": Pgd(steps=10, loss="dlr"),
    "square": Square(queries=5000),
    "square-12": Square(queries=12),
    "autoattack": AutoAttack(parts=STANDARD),
    "apgd": Apgd(),
    "apgd-ce": Apgd(),
    "apgd-t": Apgd(loss="t"),
    "apgd-cw-20": Apgd(loss="margin", steps=20),
    "APGD_DLR_100_5": Apgd(loss="dlr", restarts=5),
    "fab": Fab(targeted=False),
    "fab-t": Fab(),
    "pyautoattack": PyAutoAttack(),
    "pyautoattack-apgd-ce": PyAutoAttack(part="apgd-ce"),
    "pyautoattack-square": PyAutoAttack(part="square"),
    "APGD-CE+square": AutoAttack(parts=("apgd-ce", "square")),
    "apgd-ce+apgd-t+fab-t+square": AutoAttack(),
}


@pytest.mark.parametrize("text", MEANT)
def test_a_name_gives_its_attack(text: str) -> None:
    assert parse_attack(text) == MEANT[text]


@pytest.mark.parametrize("text", [*EXAMPLES, "pgd-dlr-7-3"])
def test_a_name_is_its_own_canonical_form(text: str) -> None:
    assert parse_attack(text).name == text


ATTACKS: st.SearchStrategy[Attack] = st.one_of(
    st.builds(
        Pgd,
        steps=st.integers(1, 99),
        restarts=st.integers(1, 20),
        start=st.sampled_from(STARTS),
        loss=st.sampled_from(LOSS_NAMES),
        alpha=st.none() | st.floats(0.01, 1),
        iterate=st.sampled_from(ITERATES),
    ),
    st.builds(Square, queries=st.integers(1, 9999)),
    st.builds(Apgd, loss=st.sampled_from(APGD_LOSSES), steps=st.integers(1, 200), restarts=st.integers(1, 9)),
    st.builds(AutoAttack, parts=st.lists(st.sampled_from([*PARTS]), min_size=2, max_size=4).map(tuple)),
    st.builds(Fab, targeted=st.booleans()),
    st.builds(PyAutoAttack, part=st.sampled_from(["standard", *PARTS])),
)


@given(ATTACKS)
@example(Pgd(steps=1, start="zero", loss="dlr"))
@example(Pgd(steps=1, start="zero", restarts=3))
def test_the_name_and_the_options_of_an_attack_give_it_back(attack: Attack) -> None:
    options = {option: getattr(attack, option, None) for option in ("alpha", "start")}
    iterate = getattr(attack, "iterate", "worst")
    assert parse_attack(attack.name, iterate=iterate, **options) == attack  # type: ignore[arg-type]


def test_options_reach_the_attack() -> None:
    pgd = parse_attack("pgd-5", iterate="last", alpha=0.1, start="zero", precision="bf16")
    assert pgd == Pgd(steps=5, iterate="last", alpha=0.1, start="zero", precision="bf16")
    assert parse_attack("square-9", precision="bf16") == Square(queries=9, precision="bf16")
    assert parse_attack("apgd-t", precision="bf16") == Apgd(loss="t", precision="bf16")
    assert parse_attack("fab-t", precision="bf16") == Fab(precision="bf16")
    assert parse_attack("autoattack", precision="bf16") == AutoAttack(parts=STANDARD, precision="bf16")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aa", "did you mean 'autoattack'"),
        (
            "apgd-ce+square-100",
            "'square-100' of AutoAttack: parts take no numbers .*; write 'square', or run",
        ),
        ("fab-t-5+square", "write 'fab-t'"),
        ("sqare", "did you mean 'square'"),
        ("pgd-x", "unknown attack"),
        ("pgd-1-2-3", "pgd-STEPS-RESTARTS"),
        ("pgd-0", "at least 1"),
        ("square-0", "at least 1"),
        ("square-5-5", "unknown attack"),
        ("fgsm-2", "unknown attack"),
        ("fgsm-ce-ce", "unknown attack"),
        ("pgd-cww-5", "unknown attack"),
        ("fab+", "unknown part of AutoAttack"),
        ("fab-5", "unknown attack"),
        ("apgd-x", "unknown attack"),
        ("apgd-t-1-2-3", "apgd-ce-STEPS-RESTARTS"),
        ("apgd-ce-0", "at least 1"),
        ("autoattack-square", "unknown attack"),
        ("pyautoattack-sqare", "did you mean 'square'"),
        ("", "unknown attack"),
    ],
)
def test_wrong_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_attack(text)


def test_black_box_attacks_are_marked() -> None:
    black = {name for name in EXAMPLES if parse_attack(name).black_box}
    assert black == {"square", "square-1000", "pyautoattack-square"}


SOURCE = """
import torch

def corner(f, x, y, ball, rng):
    return torch.full_like(x, 10.0)

class Gradient:
    def __call__(self, f, x, y, ball, rng):
        probe = x.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(f(probe), y, reduction="sum")
        return ball.extreme(torch.autograd.grad(loss, probe)[0], rng.at(0))

class NeedsArgument:
    def __init__(self, steps):
        pass

def shapeless(f, x, y, ball, rng):
    return x[0]

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "myattacks.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "myattacks.py"
    sys.modules.pop("myattacks", None)


def attacked(path: str) -> tuple[AttackResult, Tensor]:
    x, y = images(0, 6)
    net = smooth_net().eval()
    result = parse_attack(path, trust_code=True)(net, x, y, Linf(0.1), ImageRng(0, range(6)), with_loss=True)
    return result, net(Linf(0.1).apply(x, result.delta)).argmax(-1) != y


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("path", ["myattacks:corner", "myattacks:Gradient"])
def test_an_imported_attack_is_projected_and_its_success_checked(path: str) -> None:
    result, wrong = attacked(path)
    assert torch.equal(result.fooled, wrong)
    assert result.delta.abs().max() <= 0.1 * (1 + 1e-12)
    assert result.loss is not None
    assert parse_attack(path, trust_code=True).name == path


def test_the_source_of_an_imported_attack_is_a_part_of_it(mine: Path) -> None:
    first = parse_attack("myattacks:corner", trust_code=True)
    mine.write_text(SOURCE.replace("10.0", "0.01"))
    sys.modules.pop("myattacks")
    assert parse_attack("myattacks:corner", trust_code=True) != first


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("myattacks:NeedsArgument", "cannot be made: TypeError"),
        ("myattacks:number", "is no function"),
        ("myattacks:cornr", "did you mean 'corner'"),
    ],
)
def test_wrong_imported_attacks_are_refused(path: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_attack(path, trust_code=True)
    with pytest.raises(InputError, match="--trust-code"):
        parse_attack(path)


@pytest.mark.usefixtures("mine")
def test_an_imported_attack_must_return_perturbations() -> None:
    with pytest.raises(InputError, match="must return δ of shape"):
        attacked("myattacks:shapeless")
