"""Readers of published files, on synthetic files in their true formats."""

import gzip
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import synthetic_files
from freeat.data import load_data
from freeat.data.readers.cifar import read_pickle
from freeat.errors import InputError


def rows(x: torch.Tensor) -> np.ndarray:
    """Images as CIFAR stores them."""
    return x.flatten(1).numpy()


@pytest.mark.parametrize(
    ("write", "name", "archive"),
    [
        (synthetic_files.cifar10_python, "cifar-10-batches-py", "cifar-10-python.tar.gz"),
        (synthetic_files.cifar10_binary, "cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10(tmp_path: Path, write: Callable, name: str, archive: str, packed: bool) -> None:
    folder = tmp_path / name
    written = write(folder)
    path = synthetic_files.tar_gz(folder).rename(tmp_path / archive) if packed else folder
    data = load_data(path)
    train = [f"data_batch_{i}" for i in range(1, 6)]
    np.testing.assert_array_equal(rows(data.train.x), np.concatenate([written[n] for n in train]))
    np.testing.assert_array_equal(rows(data.test.x), written["test_batch"])
    expected = np.concatenate([written[f"{n} labels"] for n in train])
    np.testing.assert_array_equal(data.train.y.numpy(), expected)
    assert data.classes == tuple(f"class{i}" for i in range(10))
    assert "not verified" in data.notes[0]


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (synthetic_files.cifar100_python, "cifar-100-python"),
        (synthetic_files.cifar100_binary, "cifar-100-binary"),
    ],
)
def test_cifar100_has_its_fine_labels(tmp_path: Path, write: Callable, name: str) -> None:
    written = write(tmp_path / name)
    data = load_data(tmp_path / name)
    np.testing.assert_array_equal(rows(data.test.x), written["test"])
    np.testing.assert_array_equal(data.train.y.numpy(), written["train labels"])
    assert data.classes == tuple(f"f{i}" for i in range(100))
    assert data.augment is not None


def test_svhn_label_ten_is_the_digit_zero(tmp_path: Path) -> None:
    written = synthetic_files.svhn(tmp_path / "svhn")
    data = load_data(tmp_path / "svhn")
    assert data.train.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    np.testing.assert_array_equal(data.train.x[4].numpy(), written["train"][..., 4].transpose(2, 0, 1))


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path: Path, packed: bool) -> None:
    written = synthetic_files.idx(tmp_path / "mnist", packed=packed)
    data = load_data(tmp_path / "mnist")
    np.testing.assert_array_equal(data.test.x[:, 0].numpy(), written["t10k-images-idx3-ubyte"])
    assert data.train.y.tolist() == [*range(10), *range(10)]
    assert data.shape == (1, 28, 28)


@pytest.mark.parametrize("packed", [False, True])
def test_tiny_imagenet_takes_its_validation_images_for_testing(tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    synthetic_files.tiny_imagenet(folder)
    data = load_data(synthetic_files.zipped(folder) if packed else folder, data_dir=tmp_path)
    assert data.classes == ("n01", "n02")
    assert data.train.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.y.tolist() == [1, 0, 0, 1]
    assert data.test.x.float().mean((1, 2, 3)).round().tolist() == [0, 40, 80, 120]
    assert torch.equal(data.train.x[1, 0], data.train.x[1, 2])  # the grey one, as RGB
    assert data.shape == (3, 64, 64)


def test_a_tiny_imagenet_image_that_is_missing_is_named(tmp_path: Path) -> None:
    synthetic_files.tiny_imagenet(tmp_path / "tiny")
    (tmp_path / "tiny" / "val" / "images" / "val_2.JPEG").unlink()
    with pytest.raises(InputError, match=r"val_2\.JPEG is missing"):
        load_data(tmp_path / "tiny", data_dir=tmp_path)


def test_digits_are_embedded_and_their_split_is_fixed(tmp_path: Path) -> None:
    data = load_data("digits", data_dir=tmp_path, seed=5)
    assert (len(data.train), len(data.test), data.shape) == (1200, 597, (1, 8, 8))
    assert data.digest == load_data("digits", seed=6).digest
    assert set((data.train.x * 16).unique().tolist()) == set(range(17))
    shares = torch.bincount(data.test.y) / torch.bincount(torch.cat([data.train.y, data.test.y]))
    assert float(shares.max() - shares.min()) < 0.01


class Hostile:
    def __init__(self, call: Callable, *arguments: object) -> None:
        self.call = call, arguments

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize(
    "call", [(os.system, "true"), (eval, "1"), (getattr, "x", "upper"), (np.load, "x.npy")]
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_hostile_pickle_is_refused(tmp_path: Path, call: tuple, protocol: int) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    synthetic_files.cifar10_python(folder)
    (folder / "data_batch_3").write_bytes(pickle.dumps({b"data": Hostile(*call)}, protocol))
    with pytest.raises(InputError, match=r"data_batch_3: pickle refers to .*only arrays"):
        load_data(folder)


def test_a_pickle_cannot_reconstruct_another_type() -> None:
    attack = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR."
    with pytest.raises(InputError, match="only plain arrays"):
        read_pickle(attack, "attack")


@pytest.mark.parametrize("data", [b"", b"not a pickle", pickle.dumps([1, 2]), pickle.dumps({"a": 1})[:-4]])
def test_a_damaged_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="some file: "):
        read_pickle(data, "some file")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("write", "name", "file"),
    [
        (synthetic_files.cifar10_python, "cifar-10-batches-py", "data_batch_2"),
        (synthetic_files.cifar10_binary, "cifar-10-batches-bin", "test_batch.bin"),
        (synthetic_files.svhn, "svhn", "test_32x32.mat"),
        (lambda f: synthetic_files.idx(f, packed=False), "mnist", "train-images-idx3-ubyte"),
        (lambda f: synthetic_files.idx(f, packed=True), "mnist", "train-images-idx3-ubyte.gz"),
    ],
)
@pytest.mark.parametrize("damage", [cut, Path.unlink])
def test_a_cut_or_missing_file_is_named(
    tmp_path: Path, write: Callable, name: str, file: str, damage: Callable
) -> None:
    if damage is Path.unlink and name == "mnist":
        file = file.replace("train-images", "t10k-images")  # without its mark it is no idx folder at all
    write(tmp_path / name)
    damage(tmp_path / name / file)
    with pytest.raises(InputError, match=file.removesuffix(".gz").replace(".", r"\.")):
        load_data(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08\x03" + bytes(8), "do not hold"),
        (b"\0\0\x0d\x01" + bytes(8), "not an idx file"),
        (b"", "not an idx file"),
    ],
)
def test_a_bad_idx_header_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    synthetic_files.idx(tmp_path / "mnist", packed=True)
    with gzip.open(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", "wb") as out:
        out.write(content)
    with pytest.raises(InputError, match=message):
        load_data(tmp_path / "mnist")


def test_a_python3_pickle_of_arrays_is_read() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    out = io.BytesIO()
    pickle.dump({"data": array}, out, protocol=4)
    np.testing.assert_array_equal(read_pickle(out.getvalue(), "file")["data"], array)
