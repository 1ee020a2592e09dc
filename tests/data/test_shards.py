"""Tar shards: labels beside the images as WebDataset has them, or class folders inside tars."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import synthetic_files
from freeat.data import load_data
from freeat.data.dataset import content_digest
from freeat.data.readers import shards
from freeat.errors import InputError


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def examples(n: int, label: str = "cls", names: tuple[str, ...] = ()) -> dict[str, bytes]:
    """n images in classes 0, 1, 2 in turn, each with a file that says so."""
    files = {}
    for i in range(n):
        files[f"{i:03}.png"] = png(np.full((4, 4, 3), i, np.uint8))
        value = names[i % 3] if names else i % 3
        files[f"{i:03}.{label}"] = (json.dumps({"label": value}) if label == "json" else str(value)).encode()
    return files


@pytest.mark.parametrize("label", ["cls", "json"])
def test_labels_beside_the_images_and_splits_by_the_names_of_shards(tmp_path: Path, label: str) -> None:
    for k in range(2):  # both shards have the same keys
        write_tar(tmp_path / "set" / f"train-{k:04}.tar", examples(12, label))
    write_tar(tmp_path / "set" / "val-0000.tar", examples(6, label))
    data = load_data(tmp_path / "set", data_dir=tmp_path)
    assert data.classes == ("0", "1", "2")
    assert data.notes == ()
    assert data.train.y.tolist() == [0, 1, 2] * 8
    assert data.train.x[:, 0, 0, 0].tolist() == [*range(12)] * 2
    assert data.test.y.tolist() == [0, 1, 2] * 2


def test_ten_classes_by_number_are_not_sorted_as_text_and_names_are(tmp_path: Path) -> None:
    files = {f"{i:02}.png": png(np.full((4, 4), i, np.uint8)) for i in range(24)}
    numbers = {f"{i:02}.cls": str(i % 12).encode() for i in range(24)}
    write_tar(tmp_path / "numbers.tar", files | numbers)
    data = load_data(tmp_path / "numbers.tar", data_dir=tmp_path, test_fraction=0.5)
    assert torch.equal(data.train.x[:, 0, 0, 0] % 12, data.train.y)
    assert "numbers.tar has no test split" in data.notes[0]
    write_tar(tmp_path / "names.tar", examples(12, names=("owl", "cat", "dog")))
    named = load_data(tmp_path / "names.tar", data_dir=tmp_path)
    assert named.classes == ("cat", "dog", "owl")
    assert torch.equal((named.train.x[:, 0, 0, 0].long() + 2) % 3, named.train.y)


@pytest.mark.parametrize("top", ["", "pets/"])
def test_class_folders_inside_tars_are_read_like_the_folder(tmp_path: Path, top: str) -> None:
    files = {}
    for split, n in (("train", 4), ("test", 2)):
        for i in range(n):
            for label in ("cat", "dog"):
                files[f"{split}/{label}/{i}.png"] = png(synthetic_files.pixels(4, 4, 3))
    for name, content in files.items():
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).write_bytes(content)
    inside = [(f"{top}{name}", content) for name, content in files.items()]
    write_tar(tmp_path / "tars" / "a.tar", dict(inside[:5]))
    write_tar(tmp_path / "tars" / "b.tar", dict(inside[5:]))
    expected = load_data(tmp_path / "pets", data_dir=tmp_path)
    assert load_data(tmp_path / "tars", data_dir=tmp_path).digest == expected.digest


@pytest.mark.parametrize("limit", [10, 1 << 30])
def test_workers_and_streams_read_the_same_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("freeat.data.readers.store.WORTH_CACHING", 1)
    write_tar(tmp_path / "train.tar", examples(90))
    cached = load_data(tmp_path / "train.tar", data_dir=tmp_path, memory_limit=limit, workers=2)
    streamed = load_data(tmp_path / "train.tar", data_dir=tmp_path, stream=True)
    assert torch.equal(streamed.train.x, cached.train.x)
    assert streamed.train.streamed


@pytest.mark.parametrize("beside", [True, False])
def test_second_start_opens_no_shard_and_a_changed_one_is_scanned_again(
    tmp_path: Path, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("store", "shards"):
        monkeypatch.setattr(f"freeat.data.readers.{module}.WORTH_CACHING", 1)
    files = (
        examples(6)
        if beside
        else {f"{'ab'[i % 2]}/{i}.png": png(np.full((4, 4), i, np.uint8)) for i in range(6)}
    )
    more = {
        f"x{name}" if beside else f"a/x{k}.png": content for k, (name, content) in enumerate(files.items())
    }
    for k, content in enumerate((files, more)):
        write_tar(tmp_path / "set" / f"{k}.tar", content)
    scanned: list[str] = []
    scan = shards.opened_tar
    monkeypatch.setattr(shards, "opened_tar", lambda path: scanned.append(path.name) or scan(path))
    first = load_data(tmp_path / "set", data_dir=tmp_path, workers=0)
    assert scanned == ["0.tar", "1.tar"]
    assert load_data(tmp_path / "set", data_dir=tmp_path, workers=0).digest == first.digest
    assert content_digest(tmp_path / "set", data_dir=tmp_path, workers=0)
    assert scanned == ["0.tar", "1.tar"]
    write_tar(tmp_path / "set" / "1.tar", dict(list(more.items())[:-2]))
    assert len(load_data(tmp_path / "set", data_dir=tmp_path, workers=0).train) < len(first.train)
    assert scanned == ["0.tar", "1.tar", "1.tar"]
    assert len([*(tmp_path / "cache").glob("*.members.json")]) == 2


def test_a_shard_with_names_that_are_no_text_is_scanned_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document would hold other names."""
    monkeypatch.setattr("freeat.data.readers.shards.WORTH_CACHING", 1)
    files = {f"{'ab'[i % 2]}/{i}\udcff.png": png(np.full((4, 4), i, np.uint8)) for i in range(10)}
    write_tar(tmp_path / "one.tar", files)
    for _ in range(2):
        assert len(load_data(tmp_path / "one.tar", data_dir=tmp_path, workers=0).train) == 8
    assert not [*tmp_path.glob("cache/*.members.json")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.png": b"", "b.cls": b"0", "b.png": b""}, r"train/a\.png has no label; store train/a\.cls"),
        ({"a.png": b"", "a.cls": b"\xff"}, "text with a label"),
        ({"a.png": b"", "a.json": b'{"caption": "x"}'}, "holds no label"),
        ({"a.png": b"", "a.json": b'{"label": true}'}, "holds no label"),
        ({"a.png": b"", "a.json": b"{"}, r"a\.json is damaged"),
        ({"a.png": b"", "a.cls": b"0", "b.png": b"", "b.cls": b"cat"}, "use one kind"),
        ({"a.png": b"", "a.json": b'{"label": -1}'}, "begin at 0"),
        ({"../a.png": b"", "a.cls": b"0"}, "leaves its folder"),
        ({"readme.txt": b""}, "no images"),
    ],
)
def test_bad_shards_are_refused(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    write_tar(tmp_path / "train.tar", files)
    with pytest.raises(InputError, match=message):
        load_data(tmp_path / "train.tar", data_dir=tmp_path)


def test_compressed_shards_and_images_in_two_shards_are_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "train.tar", examples(3), mode="w:gz")
    with pytest.raises(InputError, match="is compressed"):
        load_data(tmp_path / "train.tar", data_dir=tmp_path)
    for k in range(2):
        write_tar(tmp_path / "two" / f"{k}.tar", {"cat/0.png": b"", "dog/0.png": b""})
    with pytest.raises(InputError, match=r"cat/0\.png is in two of its tars"):
        load_data(tmp_path / "two", data_dir=tmp_path)


def test_a_class_only_in_the_test_shards_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "set" / "train.tar", examples(6, names=("a", "b", "b")))
    write_tar(tmp_path / "set" / "test.tar", examples(3, names=("a", "b", "c")))
    with pytest.raises(InputError, match=r"class 'c' of test/002\.png has no training images"):
        load_data(tmp_path / "set", data_dir=tmp_path)
