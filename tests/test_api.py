"""The library in a few lines: what it returns, and what it refuses."""

import pytest
import torch
from torch import nn

import freeat


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_an_algorithm_by_name_is_the_algorithm() -> None:
    ball = freeat.L2(0.3)
    settings = {"updates": 8, "device": "cpu", "attack": freeat.Pgd(steps=2)}
    torch.manual_seed(0)
    named, made = net(), net()
    made.load_state_dict(named.state_dict())
    one = freeat.train(named, "digits", algorithm="free-2", ball=ball, **settings)
    two = freeat.train(made, "digits", algorithm=freeat.Free(m=2, ball=ball), **settings)
    assert all(torch.equal(p, q) for p, q in zip(named.parameters(), made.parameters(), strict=True))
    assert one.gap == two.gap
    assert one.result["update"] == 8


def test_a_name_needs_a_ball() -> None:
    with pytest.raises(freeat.InputError, match="needs a ball"):
        freeat.train(net(), "digits", algorithm="free-4", updates=1)


def test_erm_must_be_told_where_it_is_judged() -> None:
    with pytest.raises(freeat.InputError, match="no ball of its own"):
        freeat.train(net(), "digits", algorithm=freeat.Erm(), updates=1)


def test_an_optimizer_of_another_model_is_refused() -> None:
    model, other = net(), net()
    with pytest.raises(freeat.InputError, match="no parameter of this model"):
        freeat.train(
            model,
            "digits",
            algorithm=freeat.Fast(ball=freeat.L2(0.3)),
            optimizer=torch.optim.SGD(other.parameters(), lr=0.1),
            updates=1,
        )


def test_a_run_is_loaded_with_its_result(tmp_path_factory: pytest.TempPathFactory) -> None:
    from freeat.cli import run

    folder = tmp_path_factory.mktemp("loaded") / "run"
    words = "--data digits --model linear --algorithm fast --norm l2 --eps 0.3 --updates 4 --final-size 40 --threads 1"
    assert run(["train", *words.split(), "--out", str(folder)]) == 0
    model, result = freeat.load_run(folder)
    x, y = freeat.load_data("digits").test.batch(torch.arange(5))
    assert model(x).shape == (len(y), 10)
    assert not model.training
    assert result["update"] == 4
