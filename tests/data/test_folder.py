"""Folders and zips of a user's own images, and the memory-mapped cache of large ones."""

import errno
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image, ImageOps

import synthetic_files
from freeat.data import CropFlip, Images, load_data
from freeat.data.dataset import content_digest
from freeat.data.prefetch import default_workers, prefetched
from freeat.data.readers.pixels import CachedPixels, Header
from freeat.data.readers.shards import ShardTree
from freeat.data.readers.store import PixelStore
from freeat.data.readers.trees import open_tree
from freeat.errors import InputError
from freeat.files.documents import temporary_name


def save(path: Path, image: np.ndarray | Image.Image, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path, **options)


def classes(root: Path, per_class: int = 5, side: int = 8) -> dict[str, np.ndarray]:
    """Two classes of colour images directly in the root."""
    written = {}
    for label in ("cat", "dog"):
        for i in range(per_class):
            written[f"{label}/{i}.png"] = synthetic_files.pixels(side, side, 3)
            save(root / label / f"{i}.png", written[f"{label}/{i}.png"])
    return written


def test_train_and_test_folders_are_the_splits(tmp_path: Path) -> None:
    train, test = classes(tmp_path / "pets" / "train"), classes(tmp_path / "pets" / "val", per_class=2)
    data = load_data(tmp_path / "pets", data_dir=tmp_path)
    assert data.classes == ("cat", "dog")
    assert data.notes == ()
    assert data.test.y.tolist() == [0, 0, 1, 1]
    expected = np.stack([train[name] for name in sorted(train)]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(data.train.x.numpy(), expected)
    np.testing.assert_array_equal(data.test.x[3].numpy(), test["dog/1.png"].transpose(2, 0, 1))
    assert data.augment == CropFlip(pad=1)


def test_without_a_test_folder_a_stratified_split_is_made_and_noted(tmp_path: Path) -> None:
    classes(tmp_path / "pets", per_class=10)
    data = load_data(tmp_path / "pets", data_dir=tmp_path, seed=3, test_fraction=0.3)
    assert (len(data.train), len(data.test)) == (14, 6)
    assert torch.bincount(data.test.y).tolist() == [3, 3]
    assert "a stratified one of 6 of its 20 images was made (seed 3)" in data.notes[0]
    assert data.digest == load_data(tmp_path / "pets", seed=3, test_fraction=0.3).digest
    assert data.digest != load_data(tmp_path / "pets", seed=4, test_fraction=0.3).digest


def test_classes_without_a_test_image_are_named_once(tmp_path: Path) -> None:
    root = tmp_path / "pets"
    classes(root, per_class=9)
    for name in "abcdefg":
        save(root / f"{name}-fox" / "0.png", synthetic_files.pixels(8, 8, 3))
    data = load_data(root, data_dir=tmp_path, test_fraction=0.1)
    _, note = data.notes
    assert note == (
        "pets: the test split has no image of a-fox, b-fox, c-fox, d-fox, e-fox and 2 more: there are too "
        "few; add some, or store a test split beside them."
    )
    assert torch.bincount(data.train.y).tolist() == [1, 1, 1, 8, 1, 8, 1, 1, 1]


def test_a_zip_of_images_is_read_like_its_folder(tmp_path: Path) -> None:
    classes(tmp_path / "pets")
    archive = synthetic_files.zipped(tmp_path / "pets")
    assert load_data(archive).digest == load_data(tmp_path / "pets").digest


def test_nested_hidden_and_other_files(tmp_path: Path) -> None:
    classes(tmp_path)
    save(tmp_path / "cat" / "deep" / "er" / "nested.png", synthetic_files.pixels(8, 8, 3))
    save(tmp_path / "cat" / ".hidden.png", synthetic_files.pixels(9, 9, 3))
    save(tmp_path / ".git" / "x.png", synthetic_files.pixels(9, 9, 3))
    (tmp_path / "cat" / "readme.txt").write_text("no image")
    data = load_data(tmp_path)
    assert len(data.train) + len(data.test) == 11
    assert torch.bincount(torch.cat([data.train.y, data.test.y])).tolist() == [6, 5]


@pytest.mark.parametrize("split", ["", "train/", "test/"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_empty_class_folder_is_named(tmp_path: Path, split: str, packed: bool) -> None:
    root = tmp_path / "pets"
    for part in ("train/", "test/") if split else ("",):
        classes(root / part)
    (root / split / "owl").mkdir()
    with pytest.raises(InputError, match=rf"pets(\.zip)?/{split}owl: a class folder without images"):
        load_data(synthetic_files.zipped(root) if packed else root)


def test_all_empty_class_folders_are_named_at_once(tmp_path: Path) -> None:
    classes(tmp_path / "pets")
    for k in range(7):
        (tmp_path / "pets" / f"owl-{k}").mkdir()
    with pytest.raises(
        InputError, match=r"pets/owl-0, .*pets/owl-4 and 2 more: class folders without images"
    ):
        load_data(tmp_path / "pets")


def test_folder_without_images_is_no_class_and_is_noted(tmp_path: Path) -> None:
    classes(tmp_path / "pets")
    (tmp_path / "pets" / "labels").mkdir()
    (tmp_path / "pets" / "labels" / "cat.xml").write_text("<box/>")
    data = load_data(tmp_path / "pets")
    assert data.classes == ("cat", "dog")
    assert data.notes[0] == "pets: the folder labels holds no images and was left out."


def test_mixed_sizes_are_resized_by_the_stated_rule(tmp_path: Path) -> None:
    classes(tmp_path, side=20)
    wide = np.zeros((24, 48, 3), np.uint8)
    wide[:, 12:36] = 255  # the centre square, which remains
    save(tmp_path / "cat" / "wide.png", wide)
    data = load_data(tmp_path)
    assert data.shape == (3, 20, 20)
    assert any("shorter side to 20 pixels (bilinear), and cropped at their centre" in n for n in data.notes)
    whole = torch.cat([data.train.x, data.test.x])
    inside = whole[..., 1:-1]  # bilinear weights reach one pixel over the edge
    assert int((inside == 255).flatten(1).all(1).sum()) == 1


def test_image_size_is_obeyed_and_large_mixed_images_shrink_to_64(tmp_path: Path) -> None:
    classes(tmp_path, side=70)
    assert load_data(tmp_path).shape == (3, 70, 70)
    assert load_data(tmp_path, image_size=12).shape == (3, 12, 12)
    save(tmp_path / "cat" / "more.png", synthetic_files.pixels(100, 90, 3))
    assert load_data(tmp_path).shape == (3, 64, 64)
    with pytest.raises(InputError, match="image size 0"):
        load_data(tmp_path, image_size=0)


def test_all_modes_become_rgb_unless_all_are_grey(tmp_path: Path) -> None:
    grey = synthetic_files.pixels(8, 8)
    for i, label in enumerate(("a", "b", "a", "b")):
        save(tmp_path / label / f"{i}.png", grey)
    assert load_data(tmp_path).shape == (1, 8, 8)
    colour = Image.fromarray(synthetic_files.pixels(8, 8, 3))
    save(tmp_path / "a" / "palette.png", colour.convert("P"))
    save(tmp_path / "a" / "alpha.png", colour.convert("RGBA"))
    save(tmp_path / "b" / "bits.png", Image.fromarray(grey).convert("1"))
    save(tmp_path / "b" / "cmyk.jpg", colour.convert("CMYK"))
    assert load_data(tmp_path).shape == (3, 8, 8)


@pytest.mark.parametrize(("mode", "suffix"), [("I;16", "png"), ("I;16", "tif"), ("I;16B", "tif")])
def test_sixteen_bit_grey_keeps_its_high_byte(tmp_path: Path, mode: str, suffix: str) -> None:
    deep = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    stored = deep.astype(">u2" if mode == "I;16B" else "<u2").tobytes()
    for label in ("a", "b"):
        for i in range(2):
            save(tmp_path / "train" / label / f"{i}.{suffix}", Image.frombytes(mode, (8, 8), stored))
            save(tmp_path / "test" / label / f"{i}.{suffix}", Image.frombytes(mode, (8, 8), stored))
    np.testing.assert_array_equal(load_data(tmp_path).train.x[0, 0].numpy(), deep >> 8)


def test_images_are_rotated_by_their_exif_tag(tmp_path: Path) -> None:
    tall = synthetic_files.pixels(12, 8, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    for i, label in enumerate(("a", "b", "a", "b")):
        save(tmp_path / label / f"{i}.png", np.rot90(tall).copy(), exif=exif)
    data = load_data(tmp_path, test_fraction=0.5)
    assert data.shape == (3, 12, 8)
    np.testing.assert_array_equal(data.train.x[0].numpy(), tall.transpose(2, 0, 1))


def bomb() -> bytes:
    """A PNG of a few bytes that claims 12 000 × 12 000 pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 12_000, 12_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def truncated() -> bytes:
    out = io.BytesIO()
    Image.fromarray(synthetic_files.pixels(64, 64, 3)).save(out, "JPEG")
    return out.getvalue()[:-400]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no image at all", "not a readable image"),
        (b"", "not a readable image"),
        (bomb(), "scale it down"),
        (truncated(), "truncated"),
    ],
)
def test_a_corrupt_image_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    classes(tmp_path, side=64)
    (tmp_path / "dog" / "bad.jpg").write_bytes(content)
    with pytest.raises(InputError, match=rf"dog/bad\.jpg.*{message}"):
        load_data(tmp_path)


def test_folders_of_another_form_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no images"):
        load_data(tmp_path / "empty")
    save(tmp_path / "flat" / "a.png", synthetic_files.pixels(8, 8, 3))
    with pytest.raises(InputError, match="outside a class folder"):
        load_data(tmp_path / "flat")
    save(tmp_path / "one" / "only" / "a.png", synthetic_files.pixels(8, 8, 3))
    save(tmp_path / "one" / "only" / "b.png", synthetic_files.pixels(8, 8, 3))
    with pytest.raises(InputError, match="at least 2"):
        load_data(tmp_path / "one", test_fraction=0.5)
    with pytest.raises(InputError, match=r"test fraction 1\.5"):
        load_data(tmp_path / "one", test_fraction=1.5)


def test_a_class_without_training_images_is_refused(tmp_path: Path) -> None:
    classes(tmp_path / "train")
    classes(tmp_path / "test")
    save(tmp_path / "test" / "owl" / "0.png", synthetic_files.pixels(8, 8, 3))
    with pytest.raises(InputError, match="class 'owl' has no training images"):
        load_data(tmp_path)


def test_a_zip_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as out:
        out.writestr("../cat/a.png", b"")
    with pytest.raises(InputError, match="leaves its folder"):
        load_data(tmp_path / "evil.zip")


def cached(root: Path, data_dir: Path) -> list[Path]:
    load_data(root, data_dir=data_dir, memory_limit=100)
    return sorted((data_dir / "cache").iterdir())


def test_a_large_folder_is_decoded_once_to_a_memory_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, data_dir = tmp_path / "pets", tmp_path / "data"
    classes(root)
    in_memory = load_data(root, data_dir=data_dir)
    assert not (data_dir / "cache").exists()
    mapped = load_data(root, data_dir=data_dir, memory_limit=100)
    assert mapped.digest == in_memory.digest
    assert mapped.train.workers == default_workers()  # they read ahead
    assert in_memory.train.workers == 0
    (cache,) = (data_dir / "cache").iterdir()
    assert json.loads((cache / "cache.json").read_text())["format"] == 1

    def decode(*_: object) -> None:
        raise AssertionError("decoded a second time")

    monkeypatch.setattr("freeat.data.readers.pixels.decode", decode)
    again = load_data(root, data_dir=data_dir, memory_limit=100)
    assert again.digest == in_memory.digest
    again.train.x[0] = 0  # copy-on-write: the cache itself must not change
    assert load_data(root, data_dir=data_dir, memory_limit=100).digest == in_memory.digest


def test_changed_folder_gets_a_new_cache_and_the_stale_one_is_removed(tmp_path: Path) -> None:
    root, data_dir = tmp_path / "pets", tmp_path / "data"
    classes(root)
    before = cached(root, data_dir)
    save(root / "dog" / "new.png", synthetic_files.pixels(8, 8, 3))
    after = cached(root, data_dir)
    assert len(before) == len(after) == 1
    assert before != after
    os.utime(root / "dog" / "new.png", ns=(1, 1))
    assert cached(root, data_dir) != after


@pytest.mark.parametrize("system", ["this", "without pread"])
def test_a_replaced_cache_stays_readable_to_who_has_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """A training continues while the folder changes and another command builds a cache of its new content."""
    if system == "without pread":
        monkeypatch.delattr(os, "pread", raising=False)
    root, data_dir = tmp_path / "pets", tmp_path / "data"
    classes(root)
    expected = load_data(root, data_dir=data_dir).train.x
    first = load_data(root, data_dir=data_dir, memory_limit=100).train
    save(root / "dog" / "new.png", synthetic_files.pixels(8, 8, 3))
    assert len(cached(root, data_dir)) == 1
    parts = [torch.tensor([5, -1, 0]), torch.tensor([2, 3])]
    workers = 2 if system == "this" else 0
    for rows, x in zip(parts, prefetched(lambda rows: first.view(rows)[0], parts, workers), strict=True):
        assert torch.equal(x, expected[rows])
    (pixels,) = first.parts
    with pytest.raises(InputError, match=r"No such file or directory.*run the same command again"):
        pickle.loads(pickle.dumps(pixels))[parts[0]]


def test_a_cache_is_closed_with_its_images_and_opened_anew_in_another_process(tmp_path: Path) -> None:
    classes(tmp_path / "pets")
    first = load_data(tmp_path / "pets", data_dir=tmp_path, memory_limit=100).train
    (pixels,) = first.parts
    assert isinstance(pixels, CachedPixels)
    rows = torch.tensor([0, 3])
    other = pickle.loads(pickle.dumps(pixels))
    assert torch.equal(other[rows], pixels[rows])
    descriptor, own = other._file[0], pixels._file[0]
    assert descriptor != own
    del other
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert len(pixels[rows]) == 2


def test_failed_cache_leaves_no_files(tmp_path: Path) -> None:
    root, data_dir = tmp_path / "pets", tmp_path / "data"
    classes(root, side=64)
    (root / "dog" / "bad.jpg").write_bytes(truncated())
    with pytest.raises(InputError, match=r"bad\.jpg"):
        load_data(root, data_dir=data_dir, memory_limit=100)
    assert list((data_dir / "cache").iterdir()) == []


def test_caches_of_other_splits_are_kept(tmp_path: Path) -> None:
    """Another seed divides the same images otherwise, and another process may be at its own part."""
    root, data_dir = tmp_path / "pets", tmp_path / "data"
    classes(root)
    load_data(root, data_dir=data_dir, memory_limit=100)
    (first,) = (data_dir / "cache").iterdir()
    at_work = temporary_name(first)
    shutil.copytree(first, at_work)
    load_data(root, data_dir=data_dir, memory_limit=100, seed=1)
    assert len(list((data_dir / "cache").iterdir())) == 3
    save(root / "dog" / "new.png", synthetic_files.pixels(8, 8, 3))
    load_data(root, data_dir=data_dir, memory_limit=100)
    kept = sorted((data_dir / "cache").iterdir())
    assert at_work in kept
    assert first not in kept
    assert len(kept) == 2


def spoiled(root: Path) -> None:
    """Two classes with a text that is called an image, and an image that is cut off after its header."""
    classes(root, per_class=6)
    (root / "cat" / "notes.jpg").write_text("no image")
    whole = (root / "dog" / "1.png").read_bytes()
    (root / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])


def test_all_unreadable_images_are_listed_at_once(tmp_path: Path) -> None:
    spoiled(tmp_path / "pets")
    with pytest.raises(InputError, match="2 of 14 images cannot be read") as refused:
        load_data(tmp_path / "pets", data_dir=tmp_path)
    message = str(refused.value)
    assert "cat/notes.jpg" in message
    assert "dog/cut.png" in message
    assert message.endswith("leave them out with --skip-unreadable")


def test_unreadable_images_can_be_left_out_and_are_counted(tmp_path: Path) -> None:
    spoiled(tmp_path / "pets")
    classes_only = load_data(tmp_path / "pets", data_dir=tmp_path, skip_unreadable=True)
    assert len(classes_only.train) + len(classes_only.test) == 12
    assert "pets: 2 of 14 images cannot be read and were left out." in classes_only.notes


@pytest.fixture
def always_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache as of many images, for few."""
    monkeypatch.setattr("freeat.data.readers.store.WORTH_CACHING", 1)


def no_decoding(*_: object) -> None:
    raise AssertionError("an image was opened")


@pytest.mark.usefixtures("always_cached")
@pytest.mark.parametrize("limit", [100, 1 << 30])
@pytest.mark.parametrize("skip", [False, True])
def test_second_start_opens_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, skip: bool
) -> None:
    """Headers, unreadable images, pixels and digest are all kept; a changed file is noticed."""
    root, data_dir = tmp_path / "pets", tmp_path / "data"
    classes(root)
    if skip:
        spoiled(root)
    options = {"data_dir": data_dir, "memory_limit": limit, "skip_unreadable": skip, "workers": 0}
    first = load_data(root, **options)
    assert isinstance(first.train.parts[0], torch.Tensor) == (limit > 100)
    with monkeypatch.context() as patch:
        patch.setattr("freeat.data.readers.pixels._opened", no_decoding)
        again = load_data(root, **options)
    assert torch.equal(again.train.x, first.train.x)
    assert again.notes == first.notes
    plain = Images.of(first.train.x, first.train.y).digest
    assert again.train.digest == first.train.digest == plain
    other = synthetic_files.pixels(8, 8, 3)
    for split in ("cat/0.png", "cat/1.png", "cat/2.png"):
        save(root / split, other)
    assert load_data(root, **options).digest != first.digest


def read_characters() -> int:
    """The bytes that this process has read from files."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="bytes that are read are counted in /proc")
@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_of_a_header_only_the_beginning_of_its_file_is_read(tmp_path: Path, kind: str) -> None:
    sizes = []
    for k in range(20):
        path = tmp_path / "pets" / ("cat", "dog")[k % 2] / f"{k}.jpg"
        save(path, synthetic_files.pixels(200, 150 + k, 3), quality=95, exif=turned())
        sizes.append(path.stat().st_size)
    root = tmp_path / "pets"
    if kind == "tar":
        with tarfile.open(tmp_path / "pets.tar", "w") as out:
            out.add(root, "pets")
        root = tmp_path / "pets.tar"
    tree: Any = ShardTree(root) if kind == "tar" else open_tree(root)
    store = PixelStore(folder=tmp_path / "data", workers=0)
    names = list(tree.files)
    whole = {read_header_whole(tree, name) for name in names}
    before = read_characters()
    found = store.headers(tree, names)
    assert read_characters() - before < sum(sizes) / 3
    assert set(found) == whole == {Header(height=150 + k, width=200, grey=False) for k in range(20)}


def read_header_whole(tree: Any, name: str) -> Header:
    with Image.open(io.BytesIO(tree.read(name))) as image:
        upright = ImageOps.exif_transpose(image)
        return Header(height=upright.height, width=upright.width, grey=upright.mode == "L")


def turned() -> Image.Exif:
    """An EXIF tag that says that the image lies on its side."""
    tag = Image.Exif()
    tag[0x0112] = 6
    return tag


@pytest.mark.usefixtures("always_cached")
def test_any_number_of_workers_gives_the_same_cache(tmp_path: Path) -> None:
    classes(tmp_path / "pets", per_class=70)
    archive = synthetic_files.zipped(tmp_path / "pets")
    digests = {
        load_data(path, data_dir=tmp_path / f"data{workers}", workers=workers).digest
        for path in (tmp_path / "pets", archive)
        for workers in (0, 2)
    }
    assert len(digests) == 1


@pytest.mark.usefixtures("always_cached")
def test_what_a_worker_cannot_read_is_named_as_without_workers(tmp_path: Path) -> None:
    spoiled(tmp_path / "pets")
    with pytest.raises(InputError, match="2 of 14 images cannot be read") as refused:
        load_data(tmp_path / "pets", data_dir=tmp_path, workers=1)
    assert "Traceback" not in str(refused.value)


@pytest.mark.usefixtures("always_cached")
def test_of_several_processes_one_builds_the_cache_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes(tmp_path / "pets")
    built: list[Path] = []
    write = PixelStore._write

    def slow_write(self: PixelStore, path: Path, *arguments: Any) -> tuple[str, str]:
        built.append(path)
        time.sleep(0.3)
        return write(self, path, *arguments)

    monkeypatch.setattr(PixelStore, "_write", slow_write)
    with ThreadPoolExecutor(3) as pool:
        found = list(
            pool.map(lambda _: load_data(tmp_path / "pets", data_dir=tmp_path, workers=0).digest, range(3))
        )
    assert len(set(found)) == 1
    assert len(built) == 2  # the training and the test split, once each
    assert not [*(tmp_path / "cache").glob(".*.lock")]


def test_of_two_processes_one_reads_each_image_and_the_other_waits(tmp_path: Path) -> None:
    """Headers and unreadable images, before any cache is built."""
    root, notes = tmp_path / "pets", tmp_path / "notes"
    classes(root)
    spoiled(root)
    notes.mkdir()
    program = f"""
import sys, time
from pathlib import Path
from freeat.data import load_data
from freeat.data.readers import pixels, store
store.WORTH_CACHING = 1
real, notes, me = pixels._opened, Path({str(notes)!r}), sys.argv[1]
def opened(tree, name, *how):
    with (notes / "opened").open("a") as file:
        file.write(name + "\\n")
    time.sleep(0.03)
    return real(tree, name, *how)
pixels._opened = opened
(notes / f"begun-{{me}}").touch()
while len(list(notes.glob("begun-*"))) < 2:
    time.sleep(0.001)
data = load_data({str(root)!r}, data_dir={str(tmp_path / "data")!r}, stream=True, skip_unreadable=True, workers=0)
print(data.digest)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", program, str(k)], stdout=subprocess.PIPE, text=True)
        for k in range(2)
    ]
    digests = {process.communicate(timeout=120)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(digests) == 1
    opened = (notes / "opened").read_text().split()
    images = [path.relative_to(root).as_posix() for path in root.rglob("*.*")]
    readable = set(images) - {"cat/notes.jpg", "dog/cut.png"}
    assert sorted(opened) == sorted([*images, *readable])
    assert not list(tmp_path.rglob("lease.json"))


def test_where_nothing_can_be_kept_each_process_finds_it_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("freeat.data.readers.store.WORTH_CACHING", 1)
    classes(tmp_path / "pets")
    expected = load_data(tmp_path / "pets", data_dir=tmp_path / "data", stream=True).digest
    (tmp_path / "cache").write_text("no folder")
    assert load_data(tmp_path / "pets", data_dir=tmp_path, stream=True).digest == expected
    assert "the headers of" in caplog.text
    assert (tmp_path / "cache").read_text() == "no folder"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="on Windows a dead process is not seen at once")
@pytest.mark.usefixtures("always_cached")
def test_of_a_killed_builder_the_one_that_waits_takes_over_at_once(tmp_path: Path) -> None:
    classes(tmp_path / "pets", per_class=200)
    program = f"""
import sys, time
from freeat.data import load_data
from freeat.data.readers import store
from freeat.data.readers.pixels import FilePixels

store.WORTH_CACHING = 1
if sys.argv[1] == "slow":
    read = FilePixels.__getitem__
    FilePixels.__getitem__ = lambda pixels, rows: time.sleep(rows[0].item() / 100) or read(pixels, rows)
data = load_data({str(tmp_path / "pets")!r}, data_dir={str(tmp_path / "data")!r}, memory_limit=100, workers=0)
print(data.digest)
"""

    def start(how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, how]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(pattern: str, process: subprocess.Popen[str]) -> None:
        until = time.monotonic() + 60
        while not any((tmp_path / "data").glob(pattern)):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.005)

    with start("slow") as builder:
        wait_for("cache/.*.tmp/train.npy", builder)  # it sleeps for more than 6 s in the middle
        with start("fast") as waiting:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(3)
            builder.kill()
            builder.wait()
            killed = time.monotonic()
            out, err = waiting.communicate(timeout=60)
            took = time.monotonic() - killed
    assert waiting.returncode == 0, err
    assert took < 10, "far below the time after which a lease is stale"
    expected = load_data(tmp_path / "pets", data_dir=tmp_path / "other", workers=0)
    assert out.strip() == expected.digest
    assert not [*(tmp_path / "data" / "cache").rglob(".*.tmp"), *(tmp_path / "data").rglob("lease.json")]
    assert not [*(tmp_path / "data" / "cache").glob(".*.lock")]
    assert len([*(tmp_path / "data" / "cache").glob("*/cache.json")]) == 1


@pytest.mark.usefixtures("always_cached")
@pytest.mark.parametrize("when", ["before", "while writing"])
def test_full_disk_leaves_nothing_and_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    root, data_dir = tmp_path / "pets", tmp_path / "data"
    classes(root)
    expected = load_data(root, data_dir=tmp_path / "other", workers=0).digest

    def full(out: object, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if when == "before":
        monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))
    else:
        monkeypatch.setattr("numpy.lib.format.write_array_header_1_0", full)
    found = load_data(root, data_dir=data_dir, workers=0)
    assert found.digest == expected
    assert "no cache can be written" in caplog.text
    with pytest.raises(InputError, match=r"decode them for every batch with --stream$"):
        load_data(root, data_dir=data_dir, workers=0, memory_limit=100)
    assert not [path for path in (data_dir / "cache").iterdir() if path.is_dir()]


@pytest.mark.usefixtures("always_cached")
def test_damaged_cache_is_built_again(tmp_path: Path) -> None:
    classes(tmp_path / "pets")
    first = load_data(tmp_path / "pets", data_dir=tmp_path, workers=0)
    (cache,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    whole = (cache / "train.npy").read_bytes()
    (cache / "train.npy").write_bytes(whole[:-7])
    assert torch.equal(load_data(tmp_path / "pets", data_dir=tmp_path, workers=0).train.x, first.train.x)
    assert (cache / "train.npy").read_bytes() == whole


@pytest.mark.usefixtures("always_cached")
@pytest.mark.parametrize("packed", [False, True])
def test_content_digest_is_read_once_and_follows_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    root = tmp_path / "pets"
    classes(root)
    path = synthetic_files.zipped(root) if packed else root
    first = content_digest(path, data_dir=tmp_path, workers=1)
    with monkeypatch.context() as patch:
        patch.setattr("freeat.data.readers.store._content", no_decoding)
        assert content_digest(path, data_dir=tmp_path) == first
    save(root / "cat" / "0.png", synthetic_files.pixels(8, 8, 3))
    path = synthetic_files.zipped(root) if packed else root
    assert content_digest(path, data_dir=tmp_path, workers=0) != first
    assert content_digest(root, data_dir=tmp_path / "elsewhere", workers=0) == content_digest(
        path, data_dir=tmp_path
    )


def test_a_page_of_postscript_is_no_image_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow would have Ghostscript execute it."""
    begun: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: begun.append(given))
    classes(tmp_path / "pets")
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "pets" / "cat" / "5.png").write_bytes(page)
    with pytest.raises(InputError, match="its content is of no known format"):
        load_data(tmp_path / "pets", data_dir=tmp_path)
    assert begun == []
