"""Data sets by name and by path: .npz files, substitutes, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import synthetic_files
from freeat.data import DataSet, Images, available, data_folder, load_data
from freeat.errors import InputError

X, Y = synthetic_files.pixels(6, 5, 5, 3), np.array([0, 1, 2, 0, 1, 2])


def npz(path: Path, **changes: Any) -> Path:
    content = {"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": Y[:3], **changes}
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    return path


def test_npz_of_either_layout_and_type_is_one_data_set(tmp_path: Path) -> None:
    nhwc = load_data(npz(tmp_path / "a.npz"))
    nchw = load_data(
        npz(tmp_path / "b.npz", x_train=X.transpose(0, 3, 1, 2), x_test=X[:3].transpose(0, 3, 1, 2))
    )
    floats = load_data(npz(tmp_path / "c.npz", x_train=X / 255, x_test=X[:3] / 255))
    assert nhwc.digest == nchw.digest
    np.testing.assert_array_equal(nhwc.train.x.numpy(), X.transpose(0, 3, 1, 2))
    assert torch.equal(floats.train.batch(torch.arange(6))[0], nhwc.train.batch(torch.arange(6))[0])
    assert nhwc.classes == ("0", "1", "2")
    assert nhwc.augment is None
    assert nhwc.name == "a"


def test_npz_may_be_grey_name_its_classes_and_hold_labels_as_a_column(tmp_path: Path) -> None:
    path = npz(
        tmp_path / "grey.npz",
        x_train=X[..., 0],
        x_test=X[:3, ..., 0],
        y_train=Y[:, None].astype(np.uint8),
        classes=np.array(["cat", "dog", "owl", "fox"]),
    )
    data = load_data(path)
    assert data.shape == (1, 5, 5)
    assert data.classes == ("cat", "dog", "owl", "fox")
    assert data.train.y.tolist() == Y.tolist()


def test_an_ambiguous_layout_is_refused_unless_the_file_states_it(tmp_path: Path) -> None:
    cube = synthetic_files.pixels(6, 3, 5, 3)
    with pytest.raises(InputError, match="store layout='NHWC'"):
        load_data(npz(tmp_path / "a.npz", x_train=cube, x_test=cube))
    one = load_data(npz(tmp_path / "b.npz", x_train=cube, x_test=cube, y_test=Y, layout="nchw"))
    two = load_data(npz(tmp_path / "c.npz", x_train=cube, x_test=cube, y_test=Y, layout="NHWC"))
    assert one.shape == (3, 5, 3)
    assert two.shape == (3, 3, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "no y_test"),
        ({"x_train": X.astype(object)}, "plain arrays only"),
        ({"x_train": X.astype(np.int32)}, "images of type int32"),
        ({"x_train": X * 1.0}, "divide by 255"),
        (
            {"x_train": np.where(np.arange(6).reshape(6, 1, 1, 1) == 4, np.nan, X / 255)},
            "train split: image 4: .*NaN",
        ),
        (
            {"x_test": np.where(X[:3] < 200, X[:3] / 255, np.inf)},
            r"test split: image \d and \d more of 3: .*infinite",
        ),
        ({"x_train": X[0]}, "one per image"),
        ({"x_train": X[..., :2], "x_test": X[:3, ..., :2]}, "no outer axis"),
        ({"x_train": X[0, 0]}, r"must be \(n, H, W\)"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "train split holds no images"),
        ({"x_test": X[:0], "y_test": Y[:0]}, "test split holds no images"),
        ({"x_test": X[:3, :4]}, "one \\(C, H, W\\)"),
        ({"x_test": X[:3] / 255}, "in one type"),
        ({"y_train": Y * 1.0}, "must be integers"),
        ({"y_train": Y - 1}, "label -1"),
        ({"y_train": Y[:4]}, "one per image"),
        ({"y_test": Y[:3] + 1}, "test label 3 is out of range"),
        ({"y_train": Y * 0, "y_test": Y[:3] * 0}, "at least 2"),
        ({"layout": "HWCN"}, "NHWC or NCHW"),
    ],
)
def test_a_bad_npz_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_data(npz(tmp_path / "bad.npz", **changes))


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "cut.npz")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="not a readable zip archive"):
        load_data(path)
    for other in (b"garbage", b"", b"PK\x05\x06"):
        path.write_bytes(other)
        with pytest.raises(InputError, match=r"cut\.npz: not a readable zip archive"):
            load_data(path)
    with path.open("wb") as out:
        np.save(out, X)
    with pytest.raises(InputError, match="not a readable zip archive"):
        load_data(path)


def test_the_damaged_array_of_an_npz_is_named(tmp_path: Path) -> None:
    path = npz(tmp_path / "spoilt.npz")
    content = bytearray(path.read_bytes())
    content[content.index(Y[:3].tobytes(), content.index(b"y_test.npy"))] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"spoilt\.npz: 'y_test.npy': not a readable"):
        load_data(path)


def test_classes_without_an_image_are_noted(tmp_path: Path) -> None:
    holes = np.array([0, 1, 3, 0, 1, 3])
    data = load_data(npz(tmp_path / "holes.npz", y_train=holes, y_test=np.array([0, 1, 2])))
    assert data.notes == (
        "holes has no training image of class 2.",
        "holes has no test image of class 3.",
    )
    assert load_data(npz(tmp_path / "whole.npz")).notes == ()


def test_substitute_is_noted(tmp_path: Path) -> None:
    npz(tmp_path / "cifar100.npz")
    data = load_data("CIFAR-100", data_dir=tmp_path)
    assert data.name == "cifar100"
    assert len(data.classes) == 100
    *unseen, note = data.notes
    assert unseen[0] == "cifar100 has no training image of class 3, 4, 5, 6, 7 and 92 more."
    assert "cifar100.npz (6 train and 3 test images" in note
    assert data.digest[:16] in note


def test_published_files_take_precedence_over_a_substitute_and_are_verified(tmp_path: Path) -> None:
    npz(tmp_path / "cifar10.npz")
    synthetic_files.cifar10_python(tmp_path / "cifar-10-batches-py")
    with pytest.raises(InputError, match=r"data_batch_1: MD5 .* but the published file has c99cafc1"):
        load_data("cifar10", data_dir=tmp_path)


def test_a_data_set_unpacked_in_part_is_refused_by_name_but_read_by_path(tmp_path: Path) -> None:
    synthetic_files.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    with pytest.raises(InputError, match="6 train and 4 test images, but Tiny-ImageNet has 100000 and 10000"):
        load_data("tiny-imagenet", data_dir=tmp_path)
    assert len(load_data(tmp_path / "tiny-imagenet-200", data_dir=tmp_path).train) == 6


def test_absent_data_set_is_refused_with_the_fetch_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="freeat data fetch tiny-imagenet"):
        load_data("tiny_imagenet", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar1O", "did you mean 'cifar10'"),
        ("./nowhere", "no such file or folder"),
        ("nowhere.npz", "no such file or folder"),
    ],
)
def test_an_unknown_name_or_path_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_data(name, data_dir=tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="not a data set"):
        load_data(tmp_path / "notes.txt")


def test_only_folders_are_resized(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only folders"):
        load_data("digits", image_size=32)


def test_the_data_folder_is_the_argument_then_the_variable_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FREEAT_DATA", str(tmp_path / "variable"))
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == tmp_path / "variable"
    monkeypatch.delenv("FREEAT_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert data_folder() == tmp_path / "freeat" / "data"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr("sys.platform", "win32")
    assert data_folder() == tmp_path / "local" / "freeat" / "data"


def test_catalogue_distinguishes_published_substitute_and_absent(tmp_path: Path) -> None:
    npz(tmp_path / "svhn.npz")
    (tmp_path / "mnist.npz").write_bytes(b"nonsense")
    synthetic_files.cifar10_python(tmp_path / "cifar-10-batches-py")
    entries = {entry.name: entry for entry in available(tmp_path)}
    states = {name: entry.state for name, entry in entries.items()}
    assert states == {
        "digits": "embedded",
        "cifar10": "published",
        "cifar100": "absent",
        "svhn": "substitute",
        "tiny-imagenet": "absent",
        "mnist": "damaged",
        "fashion-mnist": "absent",
    }
    assert (entries["svhn"].n_train, entries["svhn"].n_test) == (6, 3)
    assert (entries["cifar100"].n_train, entries["cifar100"].n_classes) == (50_000, 100)
    assert [name for name, entry in entries.items() if entry.present] == ["digits", "cifar10", "svhn"]


def test_data_set_made_by_hand_is_checked() -> None:
    images = Images.of(torch.zeros(4, 1, 3, 3), torch.arange(4))
    with pytest.raises(InputError, match="train label 3 is out of range"):
        DataSet(name="mine", train=images, test=images, classes=("a", "b", "c"))
