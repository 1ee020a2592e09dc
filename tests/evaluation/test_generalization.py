"""The gap of anybody's model: the same from every kind of sample, honest about its size, and without a trace."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

import freeat
from freeat.evaluation.evaluate import evaluate
from freeat.evaluation.statistics import wilson
from freeat.files.documents import plain

DATA = freeat.load_data("digits")
TRAIN, TEST = DATA.train.subset(90), DATA.test.subset(70)
BALL = freeat.L2(0.3)
ATTACK = freeat.Pgd(steps=3)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """A small net with batch norm, trained for a moment on the 90 images."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    learner = freeat.Learner(net, torch.optim.Adam(net.parameters(), lr=0.02))
    x, y = TRAIN.batch(torch.arange(len(TRAIN)))
    for _ in range(30):
        freeat.Erm().step(learner, x, y)
    return net


class Constant(nn.Module):
    """Gives class 1 to every image."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([0.0, 2.0]).expand(len(x), 2) + 0 * x.mean((1, 2, 3))[:, None]


def test_a_constant_answer_on_imbalanced_data_is_not_above_chance() -> None:
    x, y = torch.rand(200, 1, 4, 4), torch.ones(200, dtype=torch.int64)
    y[:20] = 0
    found = freeat.robust_gap(Constant(), (x, y), (x, y), BALL, attack=ATTACK)
    for part in (found.train, found.test):
        assert part.robust_accuracy == part.clean_accuracy == part.chance == 0.9
        assert part.constant_answer == 1
        assert not part.above_chance()
        assert not part.above_chance("clean_accuracy")
    assert found.constant_answer == 1
    assert str(found).endswith("the model gives the same answer to every image: its gap says nothing.")


def test_a_model_with_different_answers_has_no_constant_answer(model: nn.Module) -> None:
    found = freeat.robust_gap(model, TRAIN, TEST, BALL, attack=ATTACK)
    assert found.constant_answer is None
    assert found.train.above_chance("clean_accuracy")
    assert found.train.chance == int(TRAIN.y.bincount().max()) / len(TRAIN)
    assert "same answer" not in str(found)


def tensors(images: freeat.Images) -> tuple[Tensor, Tensor]:
    return images.batch(torch.arange(len(images)))


def loader(images: freeat.Images, **settings: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*tensors(images)), batch_size=32, **settings)


def test_accuracies_and_gap_are_those_of_the_evaluation(model: nn.Module) -> None:
    found = freeat.robust_gap(model, TRAIN, TEST, BALL, attack=ATTACK)
    expected = evaluate(model, TEST, ATTACK, BALL, classes=10).summary()
    assert found.test.robust_accuracy == expected.robust_accuracy
    assert found.test.clean_accuracy == expected.clean_accuracy
    assert found.train.robust_accuracy > found.test.robust_accuracy
    difference = found.train.robust_accuracy - found.test.robust_accuracy
    assert found.gap.value == pytest.approx(difference)
    low, high = wilson(found.test.robust_accuracy * 70, 70)
    assert found.gap.low == pytest.approx(found.train.robust_accuracy - high)  # all training images were seen
    assert found.gap.high == pytest.approx(found.train.robust_accuracy - low)
    assert plain(found)["train"]["n"] == 90


SAMPLES = {
    "tensors": tensors,
    "loader": loader,
    "data set": lambda images: TensorDataset(*tensors(images)),
    "half as wide": lambda images: [(x.double(), y.int()) for x, y in loader(images)],
    "bytes": lambda images: ((tensors(images)[0] * 255).round().to(torch.uint8), tensors(images)[1]),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_of_sample_gives_the_same(model: nn.Module, kind: str) -> None:
    """Digits have 16 levels of grey, exact in float32; as bytes they are rounded, and outcomes may differ a little."""
    numbered = [
        freeat.Images.of(*tensors(images)) for images in (TRAIN, TEST)
    ]  # drawn for by position, as theirs
    ours = freeat.robust_gap(model, *numbered, BALL, attack=ATTACK)
    theirs = freeat.robust_gap(model, SAMPLES[kind](TRAIN), SAMPLES[kind](TEST), BALL, attack=ATTACK)
    for split in ("train", "test"):
        one, other = getattr(ours, split), getattr(theirs, split)
        assert other.n == other.population == one.n
        assert other.clean_accuracy == pytest.approx(one.clean_accuracy, abs=0.02)
        assert other.robust_accuracy == pytest.approx(one.robust_accuracy, abs=0.05)
        if kind != "bytes":
            assert other.fooled == one.fooled


class Listed(Dataset[Any]):
    """A data set in the order of its classes, as a folder of images is; it may say its labels."""

    def __init__(self, images: freeat.Images, name: str | None) -> None:
        order = images.y.argsort(stable=True)
        self.x, self.y = images.batch(order)
        if name is not None:
            setattr(self, name, self.y.tolist())

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i], int(self.y[i])


@pytest.mark.parametrize("name", ["targets", "labels", None])
@pytest.mark.parametrize("read", [lambda data: data, lambda data: DataLoader(data, batch_size=8)])
def test_a_part_of_a_data_set_in_the_order_of_its_classes_is_of_all_classes(
    model: nn.Module, name: str | None, read: Any
) -> None:
    train = Listed(TRAIN, name)
    found = freeat.robust_gap(model, read(train), TEST, BALL, attack="fgsm", size=20).train
    counts = [one.n for one in found.per_class]
    assert sum(counts) == 20
    if name is not None:
        assert max(counts) <= 3
    assert sum(n > 0 for n in counts) > 5
    rows = freeat.Images.of(*(train.x, train.y)).sample(20).index.tolist()
    if name is not None:
        assert set(found.fooled) <= set(rows)  # images keep their numbers in the data set


def test_of_a_data_set_the_split_is_taken(model: nn.Module) -> None:
    found = freeat.robust_gap(model, DATA, DATA, BALL, attack="fgsm", size=50)
    assert (found.train.n, found.train.population) == (50, 1200)
    assert (found.test.n, found.test.population) == (50, 597)


def test_a_part_of_the_training_images_widens_the_interval(model: nn.Module) -> None:
    whole = freeat.robust_gap(model, TRAIN, TEST, BALL, attack=ATTACK).gap
    part = freeat.robust_gap(model, loader(TRAIN), TEST, BALL, attack=ATTACK, size=70).gap
    assert part.high - part.low > whole.high - whole.low


def test_a_loaders_images_are_those_of_its_sampler(model: nn.Module) -> None:
    some = loader(TRAIN, sampler=SubsetRandomSampler(range(40)))
    found = freeat.robust_gap(model, some, TEST, BALL, attack="fgsm", size=20)
    assert (found.train.n, found.train.population) == (20, 40)


def test_modes_and_global_random_states_are_restored(model: nn.Module) -> None:
    """Modes, gradients, weights and every generator are as they were, also a shuffling loader's own."""
    model[2].eval()
    model[0].train()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    own = torch.Generator().manual_seed(3)
    shuffled = loader(TRAIN, shuffle=True, generator=own)
    before = (torch.get_rng_state(), own.get_state(), random.getstate(), np.random.get_state()[1])  # noqa: NPY002
    first = freeat.robust_gap(model, shuffled, loader(TEST, shuffle=True), BALL, attack=ATTACK)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(own.get_state(), before[1])
    assert random.getstate() == before[2]
    assert (np.random.get_state()[1] == before[3]).all()  # noqa: NPY002
    assert not model[2].training
    assert model[0].training
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())
    torch.rand(7)
    again = freeat.robust_gap(model, shuffled, loader(TEST, shuffle=True), BALL, attack=ATTACK)
    assert again.gap == first.gap


def test_str_gives_accuracies_gaps_and_sizes(model: nn.Module) -> None:
    printed = str(freeat.robust_gap(model, TRAIN, TEST, BALL, attack="pgd-2"))
    assert "evaluated by pgd-2, l2 ε = 0.3" in printed
    assert "on 90 of 90 training and 70 of 70 test images" in printed


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no pairs": ({"train": [torch.zeros(2, 1, 8, 8)]}, "train: a batch is a Tensor: give pairs"),
    "triples": ({"test": [(torch.zeros(2, 1, 8, 8),) * 3]}, "test: a batch is a tuple of 3"),
    "used up": ({"test": iter(())}, "without images"),
    "normalized": ({"train": (torch.randn(4, 1, 8, 8) * 3, torch.zeros(4).long())}, "out of the loader"),
    "grey levels": ({"train": (torch.full((4, 1, 8, 8), 9.0), torch.zeros(4).long())}, "divide by 255"),
    "labels": ({"train": (torch.zeros(4, 1, 8, 8), torch.full((4,), 10))}, "classes 0 to 9"),
    "soft labels": ({"train": (torch.zeros(4, 1, 8, 8), torch.zeros(4))}, "int64"),
    "shape": ({"train": (torch.zeros(4, 3, 8, 8), torch.zeros(4).long())}, "fails on images of shape"),
    "size": ({"size": 0}, "at least 1 image"),
    "size of a stream": ({"train": (pair for pair in ()), "size": 3}, "does not say how many"),
    "size of batches": ({"train": list(loader(TRAIN)), "size": 3}, "does not say how many"),
    "attack": ({"attack": "pgb-10"}, "did you mean 'pgd-10'"),
    "radius": ({"ball": freeat.L2(9.0)}, "diagonal of the box"),
}


@pytest.mark.parametrize("row", BAD)
def test_bad_arguments_are_refused(model: nn.Module, row: str) -> None:
    changes, message = BAD[row]
    words = {"train": TRAIN, "test": TEST, "ball": BALL, **changes}
    with pytest.raises(freeat.InputError, match=message.replace("(", r"\(")):
        freeat.robust_gap(model, **words)
