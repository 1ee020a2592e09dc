"""The end of a classifier: logits are checked, heads are replaced."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from freeat.errors import InputError
from freeat.models import build, check_logits, replace_head

SHAPE = (3, 8, 8)


class Returns(nn.Module):
    def __init__(self, output: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor) -> object:
        return self.output(x)


def fails(_x: Tensor) -> object:
    raise RuntimeError("expected 224 pixels")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: (x.new_zeros(2, 10), x), "returns tuple.*forward returns the logits only"),
        (lambda x: {"logits": x.new_zeros(2, 10)}, "returns dict"),
        (lambda x: x.new_zeros(2, 7), r"shape \(2, 7\).*\(2, 10\).*build it for 10 classes"),
        (lambda x: x.new_zeros(2, 10, 1, 1), r"shape \(2, 10, 1, 1\)"),
        (lambda x: x.new_zeros(10), r"shape \(10,\)"),
        (lambda x: x.new_zeros(2, 10, dtype=torch.long), "torch.int64"),
        (
            lambda x: torch.softmax(torch.arange(20.0, device=x.device).view(2, 10), 1),
            "probabilities.*softmax",
        ),
        (
            lambda x: torch.softmax(torch.arange(20.0, device=x.device).view(2, 10), 1).bfloat16(),
            "probabilities",
        ),
        (fails, r"fails on images of shape \(3, 8, 8\) on .*RuntimeError: expected 224 pixels"),
    ],
)
def test_what_is_not_logits_is_refused(
    output: Callable[[Tensor], object], message: str, device: torch.device
) -> None:
    with pytest.raises(InputError, match=message):
        check_logits(Returns(output), SHAPE, 10, device)


@pytest.mark.parametrize(
    "output",
    [
        lambda x: x.new_zeros(2, 10),
        lambda x: torch.log_softmax(torch.arange(20.0, device=x.device).view(2, 10), 1),
        lambda x: x.new_full((2, 10), torch.nan),  # e.g. a model that divides by each image's contrast
    ],
)
def test_valid_logits_are_accepted(output: Callable[[Tensor], object], device: torch.device) -> None:
    check_logits(Returns(output), SHAPE, 10, device)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_of_real_images_must_be_finite(bad: float, device: torch.device) -> None:
    model = Returns(lambda x: torch.where(x.new_tensor(range(20)).view(2, 10) == 3, bad, 0.0))
    with pytest.raises(InputError, match="NaN or infinite before it is trained"):
        check_logits(model, SHAPE, 10, device, images=torch.rand(2, *SHAPE, generator=torch.Generator()))


def test_checking_logits_does_not_change_the_model(device: torch.device) -> None:
    model = build("cnn-w4", classes=10, shape=SHAPE).to(device)
    model.get_submodule("norm1").eval()
    modes = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    check_logits(model, SHAPE, 10, device)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    with pytest.raises(InputError):
        check_logits(model, (1, 8, 8), 10, device)
    assert [module.training for module in model.modules()] == modes


def test_checks_on_meta_and_in_float64() -> None:
    model = build("cnn-w4", classes=10, shape=SHAPE)
    check_logits(model.double(), SHAPE, 10, torch.device("cpu"))
    check_logits(model.to("meta"), SHAPE, 10, torch.device("meta"))


@pytest.mark.parametrize("name", ["resnet18-w4", "wrn10-1", "vgg19-w4", "cnn-w4", "mlp-w8", "linear"])
def test_only_the_head_is_replaced(name: str) -> None:
    model = build(name, classes=10, shape=SHAPE)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert replace_head(model, 4, seed=0) is model
    check_logits(model, SHAPE, 4, torch.device("cpu"))
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before if not key.startswith("head."))


def test_a_new_head_follows_the_seed_and_keeps_the_old_ones_form() -> None:
    def fresh(seed: int) -> nn.Module:
        old = nn.Linear(5, 3, bias=False, dtype=torch.float64).eval()
        return replace_head(nn.Sequential(nn.Flatten(), nn.Sequential(old)), 7, seed)

    first, again, other = (fresh(seed).get_parameter("1.0.weight") for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.dtype == torch.float64
    assert first.shape == (7, 5)
    head = fresh(1).get_submodule("1.0")
    assert head.bias is None
    assert not head.training


def test_replacing_a_head_does_not_change_the_global_generator() -> None:
    model = build("linear", classes=3, shape=SHAPE)
    state = torch.get_rng_state()
    replace_head(model, 5, seed=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_last_pointwise_convolution_is_a_head() -> None:
    squeeze = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(3, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    replace_head(squeeze, 6, seed=0)
    check_logits(squeeze, SHAPE, 6, torch.device("cpu"))


def test_single_layer_model_is_replaced_entirely() -> None:
    head = replace_head(nn.Linear(4, 2), 3, seed=0)
    assert isinstance(head, nn.Linear)
    assert head.out_features == 3


def test_a_model_without_a_head_is_refused() -> None:
    with pytest.raises(InputError, match=r"no linear layer.*start from a model with 3 classes"):
        replace_head(nn.Sequential(nn.Conv2d(3, 10, 3), nn.Flatten()), 3, seed=0)
