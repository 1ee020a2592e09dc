"""Batches for a judge: where the model is, as wide as its numbers, with draws that follow each image."""

import torch
from torch import nn

from freeat.data import Images
from freeat.evaluation.evaluate import Columns, device_and_dtype, image_batches


def images(n: int = 7) -> Images:
    pixels = torch.arange(n * 4, dtype=torch.uint8).view(n, 1, 2, 2)
    return Images(x=pixels, y=torch.arange(n) % 3, index=10 * torch.arange(n))


def test_batches_hold_every_image_once_in_the_model_s_precision() -> None:
    net = nn.Linear(4, 3).double()
    batches = list(image_batches(net, images(), 3))
    assert [len(batch.x) for batch in batches] == [3, 3, 1]
    assert {batch.x.dtype for batch in batches} == {torch.float64}
    assert torch.cat([batch.y for batch in batches]).tolist() == images().y.tolist()
    assert torch.cat([batch.rows for batch in batches]).tolist() == list(range(7))


def test_the_draws_of_an_image_do_not_depend_on_its_batch() -> None:
    net = nn.Linear(4, 3)
    whole = torch.cat([b.rng.normal("start", b.x) for b in image_batches(net, images(), 7, seed=3)])
    parts = torch.cat([b.rng.normal("start", b.x) for b in image_batches(net, images(), 2, seed=3)])
    assert torch.equal(whole, parts)
    (some,) = image_batches(net, images(), 7, seed=3, rows=torch.tensor([5, 1]))
    assert torch.equal(some.rng.normal("start", some.x), whole[[5, 1]])


def test_no_rows_are_one_empty_batch() -> None:
    (batch,) = image_batches(nn.Linear(4, 3), images(), 3, rows=torch.arange(0))
    assert batch.x.shape == (0, 1, 2, 2)


def test_columns_join_what_was_found() -> None:
    found = Columns()
    found.add(right=torch.tensor([True, False]))
    found.add(right=torch.tensor([True]), queries=torch.tensor([5]))
    joined = found.joined()
    assert joined["right"].tolist() == [True, False, True]
    assert joined["queries"].tolist() == [5]


def test_a_model_without_weights_lives_on_the_cpu() -> None:
    assert device_and_dtype(nn.Flatten()) == (torch.device("cpu"), torch.float32)
    assert device_and_dtype(nn.BatchNorm2d(2, affine=False).double())[1] == torch.float64
