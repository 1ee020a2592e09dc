"""Options that several models of one command share reach those they fit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freeat.cli.sweep_options import open_models, parse_models
from freeat.data import load_data
from freeat.errors import InputError
from problems import digits_classifier
from troubled_models import fine_for

DATA = load_data("digits")
NORMALIZE = "mean=0.5;std=0.25"


@pytest.fixture
def references(tmp_path: Path) -> list[str]:
    """A network, a factory that needs an argument, and a network whose file brings its own normalization."""
    net = digits_classifier().state_dict()
    own = {f"1.{name}": value for name, value in net.items()}
    own |= {"0.mean": torch.tensor([0.25]), "0.std": torch.tensor([0.5])}
    for name, state in (("net", net), ("made", fine_for(10).state_dict()), ("own", own)):
        torch.save(state, tmp_path / f"{name}.pt")
    makers = {"net": "linear", "made": "troubled_models:fine_for", "own": "linear"}
    return [f"{maker}@{tmp_path / name}.pt" for name, maker in makers.items()]


def opened(references: list[str], **given: Any) -> list[nn.Module]:
    defaults = {"device": "cpu", "model_args": None, "normalize": None, "trust_code": False, "data": None}
    return [one.model for one in open_models(parse_models(references), DATA, {**defaults, **given})]


def logits(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        output: Tensor = model(x)
    return output


def test_each_option_reaches_the_models_it_fits(
    references: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    net, made, own = opened(references, model_args="classes=10", normalize=NORMALIZE)
    x, _ = DATA.test.batch(torch.arange(5))
    bare = digits_classifier()
    torch.testing.assert_close(logits(net, x), logits(bare, (x - 0.5) / 0.25))
    torch.testing.assert_close(logits(own, x), logits(bare, (x - 0.25) / 0.5))
    (plain,) = opened(references[1:2], model_args="classes=10")
    torch.testing.assert_close(logits(made, x), logits(plain, (x - 0.5) / 0.25))
    (output,) = (record.getMessage() for record in caplog.records)
    assert "own.pt brings its own normalization" in output


def test_an_option_that_fits_no_model_is_refused(references: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--model-args classes=10 fits none of the models"):
        opened([references[0], references[2]], model_args="classes=10")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").touch()
    with pytest.raises(InputError, match="--normalize cifar10 fits none of the models"):
        opened([str(tmp_path / "run")], normalize="cifar10")
