"""Every family: published parameter counts, all image sizes, layouts, devices and transforms."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from freeat.models import build, parameter_count, size
from freeat.models.networks import Layers, groups

PUBLISHED = {
    "resnet18": 11_173_962,
    "resnet50": 23_520_842,
    "preact-resnet18": 11_172_170,
    "wrn34-10": 46_160_474,
    "vgg19": 20_040_522,
}
NARROW = [
    "resnet18-w4",
    "resnet50-w4",
    "preact-resnet18-w4",
    "wrn10-1",
    "vgg19-w4",
    "cnn-w4",
    "mlp-w8",
    "linear",
    "resnet18-w4-s2",
    "preact-resnet18-w4-s2",
    "vgg19-w4-s2",
    "cnn-w4-s2",
    "resnet50-w4-s4",
    "wrn10-1-s4",
    "vgg19-w4-s4",
    "cnn-w4-s4",
    "resnet18-w4-gn",
    "vgg11-w4-gn",
    "cnn-w4-gn-silu",
    "resnet18-w4-nonorm",
    "preact-resnet18-w4-nonorm-softplus",
    "vgg19-w4-nonorm",
]
CONVOLUTIONAL = [name for name in NARROW if not name.startswith(("mlp", "linear"))]


def images(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    assert size(name) == count


def test_size_agrees_with_the_built_model() -> None:
    model = build("resnet18-w16-gn", classes=7, shape=(1, 28, 28))
    assert size("resnet18-w16-gn", classes=7, shape=(1, 28, 28)) == parameter_count(model)


def test_frozen_parameters_do_not_count() -> None:
    model = build("linear", classes=3, shape=(1, 2, 2))
    model.get_parameter("head.bias").requires_grad_(False)
    assert parameter_count(model) == 12


@pytest.mark.parametrize("name", NARROW)
def test_networks_take_every_image_size_and_channel_count(name: str, device: torch.device) -> None:
    for side in (8, 16, 28, 32, 48, 64):
        for channels in (1, 3):
            model = build(name, classes=5, shape=(channels, side, side)).to(device)
            logits = model(images(2, channels, side, side).to(device))
            assert logits.shape == (2, 5)
            assert logits.isfinite().all()


@pytest.mark.parametrize(
    "name", ["vgg19-w4", "vgg19-w4-s2", "vgg19-w4-s4", "resnet18-w4", "resnet18-w4-s4", "cnn-w4"]
)
def test_networks_take_images_that_are_not_square(name: str) -> None:
    assert build(name, classes=3, shape=(2, 9, 31))(images(2, 2, 9, 31)).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("resnet18-w4", [32, 16, 8, 4]),
        ("resnet18-w4-s2", [16, 8, 4, 2]),
        ("resnet18-w4-s4", [8, 4, 2, 1]),
        ("wrn10-1", [32, 16, 8]),
    ],
)
def test_stage_resolutions_follow_the_stem(name: str, sides: list[int]) -> None:
    seen: list[int] = []
    model = build(name, classes=10, shape=(3, 32, 32))
    for stage in range(1, len(sides) + 1):
        model.get_submodule(f"stage{stage}").register_forward_hook(
            lambda _module, _inputs, out: seen.append(out.shape[-1])
        )
    model(images(2, 3, 32, 32))
    assert seen == sides


@pytest.mark.parametrize(("side", "pools"), [(8, 3), (16, 4), (28, 4), (32, 5), (64, 5)])
def test_vgg_leaves_out_pools_below_one_pixel(side: int, pools: int) -> None:
    model = build("vgg19-w4", classes=10, shape=(3, side, side))
    assert sum(isinstance(module, nn.MaxPool2d) for module in model.modules()) == pools


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_channels_last_reaches_the_pool(name: str, device: torch.device) -> None:
    model = build(name, classes=10, shape=(3, 32, 32)).to(device, memory_format=torch.channels_last)
    layouts: list[bool] = []
    model.get_submodule("pool").register_forward_pre_hook(
        lambda _module, inputs: layouts.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    x = images(2, 3, 32, 32).to(device)
    model.eval()
    plain = build(name, classes=10, shape=(3, 32, 32)).to(device).eval()(x)
    torch.testing.assert_close(
        model(x.contiguous(memory_format=torch.channels_last)), plain, rtol=1e-3, atol=1e-4
    )
    assert layouts == [True]


@pytest.mark.parametrize("name", NARROW)
def test_runs_on_meta_and_in_float64(name: str) -> None:
    model = build(name, classes=4, shape=(3, 16, 16))
    assert model.double()(images(2, 3, 16, 16).double()).dtype == torch.float64
    x = torch.empty(2, 3, 16, 16, device="meta", dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.to("meta")(x).sum(), x)
    assert gradient.shape == x.shape


@pytest.mark.parametrize("name", ["mlp-w8-silu", "linear", "cnn-w4-gn", "cnn-w4-nonorm", "resnet18-w4-gn"])
def test_vmap_over_stacked_weights_equals_each_model(name: str) -> None:
    models = [build(name, classes=3, shape=(1, 8, 8), seed=seed) for seed in range(3)]
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    x = images(3, 4, 1, 8, 8)
    stacked = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)))(parameters, buffers, x)
    separate = torch.stack([model(rows) for model, rows in zip(models, x, strict=True)])
    torch.testing.assert_close(stacked, separate)


@pytest.mark.parametrize(
    "name", ["cnn-w4-softplus", "resnet18-w4-silu", "vgg11-w4-softplus-gn", "wrn10-1-silu"]
)
def test_smooth_networks_differentiate_twice(name: str) -> None:
    model = build(name, classes=3, shape=(1, 8, 8)).double().eval()
    x = images(2, 1, 8, 8).double().requires_grad_()
    (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    second = torch.autograd.grad(first.square().sum(), list(model.parameters()), allow_unused=True)
    assert any(gradient is not None and gradient.abs().max() > 0 for gradient in second)


def test_initial_weights_follow_published_code() -> None:
    """Wide-ResNets start as He et al. (fan out), the others as torch's own layers."""
    wide = build("wrn10-4", classes=10, shape=(3, 32, 32))
    weight = wide.get_parameter("stage3.0.conv2.weight")
    assert weight.std().item() == pytest.approx((2 / (9 * 256)) ** 0.5, rel=0.02)
    assert not wide.get_parameter("head.bias").any()
    weight = build("resnet18", classes=10, shape=(3, 32, 32)).get_parameter("stage4.0.conv2.weight")
    assert weight.abs().max().item() == pytest.approx((9 * 512) ** -0.5, rel=0.001)


@pytest.mark.parametrize(
    "name", ["resnet18-w8-nonorm", "preact-resnet34-w8-nonorm", "wrn34-1-nonorm", "vgg19-w8-nonorm"]
)
def test_without_norm_the_signal_keeps_its_scale(name: str) -> None:
    model = build(name, classes=10, shape=(3, 32, 32))
    scales: list[float] = []
    model.get_submodule("pool").register_forward_pre_hook(
        lambda _module, inputs: scales.append(inputs[0].square().mean().sqrt().item())
    )
    model(images(4, 3, 32, 32))
    assert 0.02 < scales[0] < 20


def test_without_norm_convolutions_have_biases() -> None:
    bare, normed = Layers(norm_kind="none"), Layers(norm_kind="group")
    assert bare.conv(3, 8, 3).bias is not None
    assert normed.conv(3, 8, 3).bias is None


@pytest.mark.parametrize(
    ("channels", "expected"), [(1, 1), (3, 1), (10, 2), (16, 4), (64, 16), (512, 32), (134, 2)]
)
def test_group_norm_has_groups_of_four_channels_or_more(channels: int, expected: int) -> None:
    assert groups(channels) == expected
