"""Nothing on the hot path waits for a device: no value of a tensor is looked at, but for what is named here."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

import freeat.rng
from freeat import Learner, Linf, Pgd
from freeat.algorithms import make_algorithm
from freeat.algorithms.registry import FAMILIES
from freeat.algorithms.strength import MeasuredObjective
from freeat.attacks.apgd import Apgd
from freeat.attacks.pgd import COMPACT_EVERY
from freeat.attacks.result import Attack
from freeat.attacks.square import COMPACT_EVERY as SQUARE_COMPACT_EVERY
from freeat.attacks.square import Square
from freeat.compute.frozen import frozen_eval
from freeat.compute.precision import Precision
from freeat.data import CropFlip, Images
from freeat.data.batches import Batches
from freeat.learner.modifiers import ProximalTerm, WeightAverage, WeightPerturbation
from freeat.objectives import OBJECTIVES, CrossEntropy
from freeat.rng import ImageRng
from freeat.threat import L2, Ball
from freeat.training.loop import Meter, train

READS = {
    "item",
    "tolist",
    "cpu",
    "numpy",
    "nonzero",
    "masked_select",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
}
"""Methods of a tensor that look at its values, or fetch them."""

ALLOWED = {
    "rng.sample": "indices of a batch are drawn on the CPU",
    "learner.check_batch": "the first batch of a loop of one's own is looked at once",
    "pgd.__call__": "PGD asks once a restart which images are fooled already",
    "apgd.__call__": "APGD asks once a restart which images are fooled already",
    "apgd.adaptive_ascent": f"fooled images leave the batch every {COMPACT_EVERY} steps",
    "square.__call__": "Square asks once which images are wrong before it begins",
    "pgd.projected_ascent": f"images that stopped leave the batch every {COMPACT_EVERY} steps",
    "square._bumps": "the bump of each side is sent to the device once",
    "square._search": f"fooled images leave the batch every {SQUARE_COMPACT_EVERY} queries",
    "result.wrong": "an attack in bf16 or fp16 asks which images fp32 has to confirm",
    "precision.apply": "fp16: torch's scaler asks once an update whether the gradients overflowed",
}
"""The functions that may wait, each with its reason."""


def reader() -> str:
    """The innermost function of freeat on the stack, with its file."""
    for frame in inspect.stack():
        if "/freeat/" in frame.filename and not frame.function.startswith("<"):
            return f"{Path(frame.filename).stem}.{frame.function}"
    return "the test"


A_DEVICE = torch.device("cpu", 0)
"""Where tensors seem to be: another device than the host, ``torch.device("cpu")``, on which all of them are."""

SHAPED_BY_VALUES = {
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "repeat_interleave",
}
"""Operations whose result has a shape that depends on values."""

READ_BY_OPERATIONS = {"_local_scalar_dense", "is_nonzero", "equal", "allclose"}
"""Operations that return a value to the host."""


def on_host(device: Any) -> bool:
    """Whether a program names the host by this argument."""
    return isinstance(device, str | torch.device) and torch.device(device) == torch.device("cpu")


class Methods(TorchFunctionMode):
    """Notes the functions that read or fetch values by a method of a tensor, or copy numbers of the host to a device.

    Such a copy is from pageable memory, for which a program waits. On the host are tensors that are made there, by
    functions without a device, and what is computed of such tensors alone.
    """

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen
        self.host = WeakIdKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if func == DEVICE_OF:
            return A_DEVICE
        to_host = name == "to" and any(map(on_host, (*args[1:], *kwargs.values())))
        device = kwargs.get("device") or (A_DEVICE if name == "new_tensor" else "cpu")
        from_host = name in ("tensor", "as_tensor", "new_tensor") and not on_host(device)
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        of_host = all(one in self.host for one in given)
        sent = name == "to" and of_host and any(map(on_device, (*args[1:], *kwargs.values())))
        sent = sent and reader() != "rng.to_device"  # which copies from pinned memory: the last test here
        stays = of_host and name != "to" and on_host(kwargs.get("device") or "cpu")
        if name in READS or to_host or sent or (from_host and not isinstance(args[-1], Tensor)):
            self.seen.append(reader())
        made = func(*args, **kwargs)
        if stays and isinstance(made, Tensor):
            self.host[made] = True
        return made


def on_device(device: Any) -> bool:
    """Whether a program names the device by this argument."""
    return isinstance(device, torch.device) and device == A_DEVICE


DEVICE_OF = Tensor.device.__get__


class Operations(TorchDispatchMode):
    """Notes the functions that run an operation whose result, or its shape, needs values on the host."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masked = name in ("index", "index_put", "index_put_", "_unsafe_index") and any(
            t.dtype in (torch.bool, torch.uint8) for t in tree_leaves(args[1]) if isinstance(t, Tensor)
        )
        if name == "repeat_interleave" and kwargs and kwargs.get("output_size") is not None:
            return func(*args, **kwargs)
        if masked or name in SHAPED_BY_VALUES | READ_BY_OPERATIONS:
            self.seen.append(reader())
        return func(*args, **(kwargs or {}))


@contextmanager
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Inside, freeat does what it does elsewhere than on the CPU; what read a value is in the list afterwards."""
    for module in ("rng", "threat", "attacks.pgd", "attacks.apgd", "attacks.result", "attacks.square"):
        monkeypatch.setattr(f"freeat.{module}.reading_is_free", lambda x: False)
    seen: list[str] = []
    from_numpy = torch.from_numpy
    with Methods(seen) as methods, Operations(seen):

        def on_the_host(x: Any) -> Tensor:  # torch lets no mode see it
            made = from_numpy(x)
            methods.host[made] = True
            return made

        monkeypatch.setattr(torch, "from_numpy", on_the_host)
        yield seen
    monkeypatch.undo()


@pytest.mark.parametrize(
    "waits",
    {
        "item": lambda x: x[0].item(),
        "to a word": lambda x: x.to("cpu"),
        "to a device": lambda x: x.to(torch.device("cpu")),
        "to a named device": lambda x: x.to(device="cpu"),
        "to a device and a type": lambda x: x.to(torch.device("cpu"), torch.float64),
        "unique": lambda x: torch.unique(x),
        "unique rows": lambda x: torch.unique(x.view(2, 2), dim=0),
        "unique_consecutive": lambda x: torch.unique_consecutive(x),
        "repeat_interleave": lambda x: torch.repeat_interleave(x, x.long()),
        "bincount": lambda x: x.long().bincount(),
        "allclose": lambda x: torch.allclose(x, x + 1),
        "equal": lambda x: torch.equal(x, x + 1),
        "a list": lambda x: torch.tensor([1, 2], device=x.device),
        "as a tensor": lambda x: torch.as_tensor([1, 2], device=x.device),
        "a new tensor": lambda x: x.new_tensor([1, 2]),
        "nonzero": lambda x: torch.where(x > 1),
        "a mask": lambda x: x[x > 1],
        "a pageable tensor": lambda x: torch.arange(4).to(x.device),
        "a tensor of numpy": lambda x: (2 * torch.from_numpy(np.ones(4))).to(device=x.device),
    }.items(),
    ids=lambda case: case[0],
)
def test_what_waits_is_seen(
    waits: tuple[str, Callable[[Tensor], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.arange(4.0)
    with as_on_a_gpu(monkeypatch) as seen:
        waits[1](x)
    assert seen


def test_what_does_not_wait_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(4.0)
    with as_on_a_gpu(monkeypatch) as seen:
        x.to(x.device)
        x.to(torch.float64, copy=True)
        torch.tensor([1, 2])
        torch.as_tensor(x, device=x.device)
        torch.repeat_interleave(x, 2)
        torch.repeat_interleave(x, torch.tensor([1, 1, 2, 0]), output_size=4)
        torch.zeros(3, device=x.device)
        (x + torch.zeros(3, device=x.device).sum()).to(x.device)
        freeat.rng.to_device(torch.arange(4), x.device)
    assert seen == []


def network(channels: int = 3) -> nn.Module:
    g = torch.Generator().manual_seed(0)
    layers = [nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)]
    net = nn.Sequential(*layers)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(0.2 * torch.randn(p.shape, generator=g))
    return net


def batch(n: int = 12) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.rand(n, 3, 8, 8, generator=g), torch.randint(10, (n,), generator=g)


def a_learner(precision: str = "fp32", parts: str = "none", **settings: Any) -> Learner:
    net = network()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    return Learner(net, sgd, precision=Precision(precision, A_DEVICE), **PARTS[parts](net), **settings)


ALGORITHMS = [*FAMILIES, *(f"{name}-3" for name in OBJECTIVES if name != "ce"), "free-trades-2"]
PARTS: dict[str, Callable[[nn.Module], dict[str, Any]]] = {
    "none": lambda net: {"clip_grad": 1.0},
    "awp": lambda net: {"awp": WeightPerturbation(gamma=0.01)},
    "ema": lambda net: {"average": WeightAverage(net, 0.999)},
    "proximal": lambda net: {"proximal": ProximalTerm(WeightAverage(net, 1.0, first=0, every=1), 5e-4)},
}


@pytest.mark.parametrize("ball", [Linf(8 / 255), L2(0.5)], ids=["linf", "l2"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_step_reads_no_value(name: str, ball: Ball, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch()
    learner = a_learner(micro_batch=5)
    algorithm = make_algorithm(name, ball)
    meter = Meter()
    learner.expect(len(x), 0)
    with as_on_a_gpu(monkeypatch) as seen:
        meter.add(algorithm.step(learner, x, y), len(x))
    assert seen == []


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", ["free-3", "vanilla-3", "n-fgsm"])
def test_a_step_with_parts_reads_no_value(name: str, parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch()
    learner, algorithm = a_learner(parts=parts), make_algorithm(name, Linf(8 / 255))
    learner.expect(len(x), 0)
    with as_on_a_gpu(monkeypatch) as seen:
        algorithm.step(learner, x, y)
    assert seen == []


@pytest.mark.parametrize("name", ["free-3", "vanilla-2"])
def test_a_batch_of_the_loop_is_fetched_without_reading_a_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = batch(24)
    data = Images.of((255 * x).to(torch.uint8), y)
    for sampling in ("epochs", "independent"):
        batches = Batches(n=24, size=8, seed=0, sampling=sampling)  # type: ignore[arg-type]
        steps = train(a_learner(), make_algorithm(name, Linf(8 / 255)), data, batches, CropFlip(pad=2))
        with as_on_a_gpu(monkeypatch) as seen:
            next(steps)
        assert set(seen) <= {"rng.sample"}


def test_the_first_batch_of_a_loop_of_ones_own_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch()
    learner, algorithm = a_learner(), make_algorithm("free-3", Linf(8 / 255))
    with as_on_a_gpu(monkeypatch) as seen:
        algorithm.step(learner, x, y)
        assert set(seen) == {"learner.check_batch"}
        seen.clear()
        algorithm.step(learner, x, y)
    assert seen == []


def test_fp16_waits_once_an_update_only(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch()
    learner = a_learner("fp16")
    learner.expect(len(x), 0)
    with as_on_a_gpu(monkeypatch) as seen:
        make_algorithm("vanilla-3", Linf(8 / 255)).step(learner, x, y)
    assert set(seen) == {"precision.apply"}
    assert len(seen) <= 2, "an item, seen as a method and as an operation"


def test_strength_is_summed_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch()
    measured = MeasuredObjective(CrossEntropy(), Linf(0.1), len(x))
    with as_on_a_gpu(monkeypatch) as seen:
        measured.loss(network(), x, y, (x + 0.05).clamp(0, 1))
    assert seen == []
    assert measured.margin_share != 0


ATTACKS: dict[str, Attack] = {
    "last": Pgd(steps=9, iterate="last"),
    "worst": Pgd(steps=9, restarts=2),
    "square": Square(queries=100),
    "worst-bf16": Pgd(steps=3, precision="bf16"),
    "apgd-ce": Apgd(steps=9),
    "apgd-t": Apgd(loss="t", steps=5),
    "apgd-bf16": Apgd(steps=4, precision="bf16"),
}


@pytest.mark.parametrize("ball", [Linf(8 / 255), L2(0.5)], ids=["linf", "l2"])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("with_loss", [False, True], ids=["", "with-loss"])
def test_attacks_read_values_only_where_it_is_allowed_and_find_the_same(
    attack: Attack, ball: Ball, with_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ball.norm == "l2" and attack is ATTACKS["apgd-t"]:
        ball = L2(0.35)  # at 0.5 it fools every image, and none would be left to compare
    x, y = batch(40)
    net = network().eval()
    with torch.no_grad():
        y = net(x).argmax(1)  # all images are right at first

    def attacked() -> Any:
        with frozen_eval(net):
            return attack(net, x, y, ball, ImageRng(0, range(len(x))), with_loss=with_loss)

    expected = attacked()
    with as_on_a_gpu(monkeypatch) as seen:
        found = attacked()
    assert set(seen) <= set(ALLOWED)
    if with_loss or attack is ATTACKS["last"]:
        assert set(seen) <= {"pgd.__call__", "apgd.__call__", "square.__call__", "result.wrong"}
    assert 0 < int(expected.fooled.sum()) < len(x)
    assert torch.equal(found.fooled, expected.fooled)
    torch.testing.assert_close(found.delta, expected.delta)
    if expected.queries is not None:
        assert torch.equal(found.queries, expected.queries)


def test_a_step_in_bf16_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch(40)
    net = network().eval()
    attack = Pgd(steps=6, precision="bf16")
    with frozen_eval(net), as_on_a_gpu(monkeypatch) as seen:
        attack(net, x, y, Linf(8 / 255), ImageRng(0, range(len(x))), with_loss=True)
    assert seen.count("result.wrong") == 2 * attack.steps, "seen as a method and as an operation"


def test_images_leave_at_the_cadence_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = batch(40)
    net = network().eval()
    with torch.no_grad():
        y = net(x).argmax(1)
    sizes: list[int] = []

    def watched(z: Tensor) -> Tensor:
        sizes.append(len(z))
        return net(z)

    def sizes_of(attack: Attack) -> list[int]:
        sizes.clear()
        with frozen_eval(net):
            attack(watched, x, y, Linf(8 / 255), ImageRng(0, range(len(x))))
        return sizes[1:]  # the first is the clean image

    attack = Pgd(steps=9)
    at_once = sizes_of(attack)
    with as_on_a_gpu(monkeypatch):
        later = sizes_of(attack)
    assert len(set(at_once)) > 3
    assert [later[k] for k in range(len(later)) if k % COMPACT_EVERY] == [
        later[k - k % COMPACT_EVERY] for k in range(len(later)) if k % COMPACT_EVERY
    ]
    assert [later[k] for k in range(0, 9, COMPACT_EVERY)] == [at_once[k] for k in range(0, 9, COMPACT_EVERY)]


def test_indices_are_sent_to_a_gpu_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda x: calls.append("pinned") or x)
    monkeypatch.setattr(Tensor, "to", lambda x, device, **how: calls.append((device.type, how)) or x)
    freeat.rng.to_device(torch.arange(3), torch.device("cuda"))
    assert calls == ["pinned", ("cuda", {"non_blocking": True})]
