"""Arithmetic: what is run in low precision, what stays true, and what a scaler does."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freeat.compute.frozen import frozen_eval
from freeat.compute.precision import Precision, resolve_precision
from freeat.errors import InputError
from problems import images, same_bits, smooth_net, weights

CPU = torch.device("cpu")


class Recorder(nn.Module):
    """A linear net that remembers in which type it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(40, 3)
        self.computed: torch.dtype | None = None

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.flatten(1))
        self.computed = logits.dtype
        return logits


@pytest.mark.parametrize(
    ("name", "computed"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_the_network_computes_in_its_precision_and_returns_fp32(
    name: str, computed: torch.dtype, device: torch.device
) -> None:
    net = Recorder().to(device)
    x, _ = images(0, 4, dtype=torch.float32)
    logits = Precision(name, device).run(net, x.to(device))
    assert logits.dtype == torch.float32
    assert net.computed == computed


def test_output_is_fp32_or_wider() -> None:
    x, _ = images(0, 4)
    assert Precision("fp32", CPU).run(smooth_net(), x).dtype == torch.float64
    low = smooth_net(dtype=torch.bfloat16)
    assert Precision("fp32", CPU).run(low, x.bfloat16()).dtype == torch.float32, "losses are taken in fp32"


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_gradients_of_images_are_unscaled_and_those_of_weights_are_unscaled_by_apply(
    name: str, device: torch.device
) -> None:
    """δ's gradient carries no factor; one SGD step moves the weights as in fp32, to the precision's rounding."""
    x, y = (t.to(device) for t in images(0, 8, dtype=torch.float32))
    found = []
    for precision in (Precision("fp32", device), Precision(name, device)):
        net = smooth_net(dtype=torch.float32).to(device)
        before = weights(net)
        delta = torch.zeros_like(x, requires_grad=True)
        nn.functional.cross_entropy(precision.run(net, x + delta), y).backward()
        precision.apply(torch.optim.SGD(net.parameters(), lr=1.0))
        moved = torch.cat([(b - a).flatten() for a, b in zip(before, weights(net), strict=True)])
        assert delta.grad is not None
        found.append((delta.grad.flatten(), moved))
    for exact, rounded in zip(*found, strict=True):
        assert (exact - rounded).norm() < 0.03 * exact.norm()


def test_fp16_gradients_too_small_for_fp16_survive() -> None:
    """1e-8 underflows in fp16; the factor carries it through the network."""
    net = Recorder()
    with torch.no_grad():
        net.linear.weight.fill_(0.5)
    x, _ = images(0, 2, dtype=torch.float32)
    x.requires_grad_()
    (Precision("fp16", CPU).run(net, x) * 1e-8).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.full_like(x, 1.5e-8), rtol=1e-2, atol=0)


def test_fp16_skips_a_step_that_overflowed_and_lowers_its_scale() -> None:
    net, precision = smooth_net(dtype=torch.float32), Precision("fp16", CPU)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before, scale = weights(net), precision.state_dict()["scale"]
    x, _ = images(0, 2, dtype=torch.float32)
    (precision.run(net, x) * 1e6).sum().backward()
    precision.apply(optimizer)
    assert same_bits(before, weights(net))
    assert precision.state_dict()["scale"] == scale / 2
    optimizer.zero_grad()
    precision.run(net, x).sum().backward()
    precision.apply(optimizer)
    assert not same_bits(before, weights(net))


def test_the_scaler_state_round_trips() -> None:
    one, other = Precision("fp16", CPU), Precision("fp16", CPU)
    state = {**one.state_dict(), "scale": 64.0, "_growth_tracker": 7}
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert Precision("bf16", CPU).state_dict() == {}


def test_auto_is_resolved_and_unknown_names_are_refused() -> None:
    assert resolve_precision("auto", CPU) in ("fp32", "bf16")
    assert resolve_precision("auto", torch.device("mps")) == "fp32"
    assert [resolve_precision(name, CPU) for name in ("fp32", "bf16", "fp16")] == ["fp32", "bf16", "fp16"]
    with pytest.raises(InputError, match="did you mean 'fp32'"):
        Precision("fp31", CPU)


def test_a_model_in_frozen_eval_mode_computes_in_true_fp32_whatever_the_process_allows() -> None:
    backends: Any = torch.backends
    kinds = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul)

    class Witness(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.seen = [kind.fp32_precision for kind in kinds]
            return x.flatten(1)

    witness = Witness()
    torch.set_float32_matmul_precision("medium")
    try:
        allowed = [kind.fp32_precision for kind in kinds]
        with frozen_eval(witness):
            witness(torch.zeros(1, 1, 2, 2))
        assert witness.seen == ["ieee"] * len(kinds)
        with pytest.raises(ZeroDivisionError), frozen_eval(witness):
            raise ZeroDivisionError
        assert [kind.fp32_precision for kind in kinds] == allowed != ["ieee"] * len(kinds)
    finally:
        torch.set_float32_matmul_precision("highest")
