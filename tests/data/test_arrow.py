"""🤗 data sets on disk: the same images and labels in every format, and bad files refused with a remedy."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from freeat.data import load_data
from freeat.data.prefetch import default_workers
from freeat.data.readers.arrow import ColumnPixels
from freeat.errors import InputError

pa = pytest.importorskip("pyarrow", reason="pip install 'freeat[datasets]'")
pq = pytest.importorskip("pyarrow.parquet", reason="pip install 'freeat[datasets]'")

CLASSES = ["zebra", "ant", "cat"]  # not in alphabetical order
rng = np.random.default_rng(0)


def random_images(n: int, size: tuple[int, ...] = (6, 6, 3)) -> np.ndarray:
    return rng.integers(0, 256, (n, *size), dtype=np.uint8)


def png(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array.squeeze()).save(file, format="PNG")
    return file.getvalue()


def table(x: np.ndarray, y: np.ndarray, *, named: bool = True, label: str = "label") -> Any:
    """As 🤗 datasets writes it: images as structs, and the features in the schema's metadata."""
    encoded = [{"bytes": png(image), "path": None} for image in x]
    image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    made = pa.table({"image": pa.array(encoded, image_type), label: pa.array(y.tolist(), pa.int64())})
    features = {"image": {"_type": "Image"}, label: {"_type": "ClassLabel", "names": CLASSES}}
    info = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    return made.replace_schema_metadata(info if named else None)


def stream(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content)


def as_parquet(folder: Path, train: Any, test: Any) -> None:
    (folder / "data").mkdir(parents=True)
    half = train.num_rows // 2
    pq.write_table(train.slice(0, half), folder / "data" / "train-00000-of-00002.parquet")
    pq.write_table(train.slice(half), folder / "data" / "train-00001-of-00002.parquet")
    pq.write_table(test, folder / "data" / "test-00000-of-00001.parquet")


def as_saved(folder: Path, train: Any, test: Any) -> None:
    for split, content in (("train", train), ("test", test)):
        stream(folder / split / "data-00000-of-00001.arrow", content)
        stream(folder / split / "cache-1234.arrow", content)
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')


@pytest.mark.parametrize("write", [as_parquet, as_saved])
def test_both_splits_and_the_names_of_the_classes(
    tmp_path: Path, write: Callable[[Path, Any, Any], None]
) -> None:
    x, y = random_images(9), np.arange(9) % 3
    write(tmp_path / "mine", table(x, y), table(x[:4], y[:4]))
    data = load_data(tmp_path / "mine", data_dir=tmp_path)
    assert data.name == "mine"
    assert data.classes == tuple(CLASSES)
    assert torch.equal(data.train.x.permute(0, 2, 3, 1), torch.from_numpy(x))
    assert data.train.y.tolist() == y.tolist()
    assert torch.equal(data.test.x, data.train.x[:4])
    assert data.notes == ()


@pytest.mark.parametrize("name", ["one.parquet", "one.arrow"])
def test_missing_test_split_is_made_and_noted(tmp_path: Path, name: str) -> None:
    content = table(random_images(30), np.arange(30) % 3)
    if name.endswith(".parquet"):
        pq.write_table(content, tmp_path / name)
    else:
        stream(tmp_path / name, content)
    data = load_data(tmp_path / name, data_dir=tmp_path)
    assert (len(data.train), len(data.test)) == (24, 6)
    assert sorted(data.test.y.tolist()) == [0, 0, 1, 1, 2, 2]
    assert data.notes == (
        f"{name} has no test split: a stratified one of 6 of its 30 images was made (seed 0).",
    )


def test_without_features_columns_are_found_by_name(tmp_path: Path) -> None:
    content = table(random_images(20, (5, 4)), np.arange(20) % 2, named=False)
    pq.write_table(content, tmp_path / "plain.parquet")
    data = load_data(tmp_path / "plain.parquet", data_dir=tmp_path)
    assert data.classes == ("0", "1")
    assert data.shape == (1, 5, 4)


def test_labels_may_be_texts(tmp_path: Path) -> None:
    names = ["cat", "ant", "bee", "cat", "ant", "bee", "cat", "ant", "bee", "cat"]
    content = (
        table(random_images(10), np.zeros(10, int), named=False)
        .drop(["label"])
        .append_column("label", pa.array(names))
    )
    as_parquet(tmp_path / "mine", content, content.slice(0, 3))
    data = load_data(tmp_path / "mine", data_dir=tmp_path)
    assert data.classes == ("ant", "bee", "cat")
    assert [data.classes[k] for k in data.train.y] == names


@pytest.mark.parametrize("kind", ["uint8", "int64", "float32"])
def test_images_may_be_arrays(tmp_path: Path, kind: str) -> None:
    x = random_images(10, (4, 5, 3))
    stored = (x / 255).astype(np.float32) if kind == "float32" else x.astype(kind)
    content = pa.table(
        {"img": pa.array(stored.tolist()), "fine_label": pa.array((np.arange(10) % 2).tolist())}
    )
    pq.write_table(content, tmp_path / "arrays.parquet")
    data = load_data(tmp_path / "arrays.parquet", data_dir=tmp_path)
    assert data.shape == (3, 4, 5)
    every = torch.cat([data.train.batch(torch.arange(8))[0], data.test.batch(torch.arange(2))[0]])
    assert every.sum().item() == pytest.approx(x.sum() / 255, rel=1e-5)


def arrays(x: np.ndarray, y: np.ndarray) -> Any:
    """As 🤗 datasets writes images that are arrays."""
    return pa.table({"img": pa.array(x.tolist(), nested(x)), "label": pa.array(y.tolist())})


def nested(x: np.ndarray) -> Any:
    kind = pa.from_numpy_dtype(x.dtype)
    for _ in x.shape[1:]:
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize("kind", ["uint8", "int64", "float32"])
@pytest.mark.parametrize("layout", ["one.parquet", "one.arrow", "splits"])
def test_arrays_above_the_memory_limit_are_read_row_by_row_with_the_same_digest(
    tmp_path: Path, layout: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freeat.data.readers.arrow.ROWS_AT_ONCE", 7)
    x, y = random_images(40, (3, 5, 4)), np.arange(40) % 3
    x = (x / 255).astype(np.float32) if kind == "float32" else x.astype(kind)
    content = arrays(x, y)
    if layout == "splits":
        as_parquet(tmp_path / layout, content, arrays(x[:9], y[:9]))
    elif layout == "one.parquet":
        pq.write_table(content, tmp_path / layout)
    else:
        stream(tmp_path / layout, content)
    expected = load_data(tmp_path / layout, data_dir=tmp_path)
    for workers in (None, 2):
        data = load_data(tmp_path / layout, data_dir=tmp_path, memory_limit=100, workers=workers)
        for split in ("train", "test"):
            found, whole = getattr(data, split), getattr(expected, split)
            assert isinstance(found.parts[0], ColumnPixels)
            assert found.workers == (workers or default_workers())
            assert found.digest == whole.digest
            assert torch.equal(found.x, whole.x)
            assert torch.equal(found.index, whole.index)
            rows = torch.tensor([5, 0, 5])
            for batch, _ in found.ahead(found.batch, [rows, rows]):
                assert torch.equal(batch, whole.batch(rows)[0])
    for name in ("blocks", "__getitem__"):  # what was read once is kept
        monkeypatch.setattr(ColumnPixels, name, None)
    data, again = (load_data(tmp_path / layout, data_dir=tmp_path, memory_limit=100) for _ in range(2))
    assert data.digest == expected.digest
    assert data.train.subset(7).digest == again.train.subset(7).digest != data.test.subset(7).digest


def test_a_made_test_split_of_arrays_copies_no_pixels(tmp_path: Path) -> None:
    pq.write_table(arrays(random_images(40), np.arange(40) % 3), tmp_path / "one.parquet")
    for limit in (100, 1 << 30):
        data = load_data(tmp_path / "one.parquet", data_dir=tmp_path, memory_limit=limit)
        parts = [*data.train.parts, *data.test.parts]
        assert [len(part) for part in parts] == [40, 40]
        if limit > 100:
            assert parts[0].data_ptr() == parts[1].data_ptr()


@pytest.mark.parametrize("kind", ["ragged", "numbers", "floats", "null"])
def test_bad_arrays_above_the_memory_limit_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freeat.data.readers.arrow.ROWS_AT_ONCE", 4)
    x: Any = random_images(10, (2, 2)).astype(np.float64 if kind == "floats" else np.int64).tolist()
    x = [[[v / 255 for v in row] for row in image] for image in x] if kind == "floats" else x
    bad = {"ragged": [[1, 2, 3]] * 2, "numbers": [[1, 2], [3, 256]], "floats": [[0.0, 2.0]] * 2, "null": None}
    x[7] = bad[kind]
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"img": x, "label": [0, 1] * 5}), path)
    messages = {"numbers": "0 to 255", "floats": r"rows from 4: image 3: float pixels between"}
    with pytest.raises(InputError, match=messages.get(kind, "several shapes")):
        load_data(path, data_dir=tmp_path, memory_limit=10)


def test_images_of_several_sizes_are_resized(tmp_path: Path) -> None:
    x = [random_images(1, (6 + k % 3, 7, 3))[0] for k in range(10)]
    encoded = [{"bytes": png(image), "path": None} for image in x]
    content = pa.table({"image": pa.array(encoded), "label": pa.array([k % 2 for k in range(10)])})
    pq.write_table(content, tmp_path / "sizes.parquet")
    data = load_data(tmp_path / "sizes.parquet", data_dir=tmp_path)
    assert data.shape == (3, 6, 6)
    assert any("resized" in note for note in data.notes)
    assert load_data(tmp_path / "sizes.parquet", data_dir=tmp_path, image_size=4).shape == (3, 4, 4)


def test_images_above_the_memory_limit_are_decoded_to_files(tmp_path: Path) -> None:
    pq.write_table(table(random_images(20), np.arange(20) % 3), tmp_path / "many.parquet")
    inside = load_data(tmp_path / "many.parquet", data_dir=tmp_path)
    outside = load_data(tmp_path / "many.parquet", data_dir=tmp_path, memory_limit=10)
    assert inside.digest == outside.digest


def test_large_parquet_files_are_unpacked_once_and_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the memory limit neither the decoded nor the encoded images are in memory."""
    x, y = random_images(40), np.arange(40) % 3
    as_parquet(tmp_path / "set", table(x, y), table(x[:9], y[:9]))
    expected = load_data(tmp_path / "set", data_dir=tmp_path / "a").digest
    options: dict[str, Any] = {"data_dir": tmp_path / "b", "memory_limit": 100}
    assert load_data(tmp_path / "set", **options).digest == expected
    assert len(list((tmp_path / "b" / "cache").glob("*.arrow"))) == 3
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read", None)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", None)
    assert load_data(tmp_path / "set", **options).digest == expected
    stream = load_data(tmp_path / "set", **options, stream=True, workers=0)
    assert np.array_equal(stream.train.x.permute(0, 2, 3, 1).numpy(), x)


def test_files_that_are_large_only_together_are_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published data sets are many files, each far below the memory limit."""
    x, y = random_images(40), np.arange(40) % 3
    as_parquet(tmp_path / "set", table(x, y), table(x[:9], y[:9]))
    footers = (pq.ParquetFile(file).metadata for file in (tmp_path / "set").glob("*/*.parquet"))
    sizes = [footer.row_group(0).total_byte_size for footer in footers]
    limit = (max(sizes) + sum(sizes)) // 2
    expected = load_data(tmp_path / "set", data_dir=tmp_path / "a").digest
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read", None)
    for stream in (False, True):
        data = load_data(
            tmp_path / "set", data_dir=tmp_path / "b", memory_limit=limit, stream=stream, workers=0
        )
        assert np.array_equal(data.train.x.permute(0, 2, 3, 1).numpy(), x)
        assert stream or data.digest == expected


def column(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


IMAGE = png(random_images(1)[0])
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "garbage": (lambda path: path.write_bytes(b"PAR1 but not really"), "not a readable .parquet file"),
    "no images": (column(text=["a", "b"], label=[0, 1]), "no column of images among text, label"),
    "no labels": (column(image=[IMAGE] * 4, of=[0, 1, 0, 1]), "no column of labels among image, of"),
    "paths only": (
        column(image=[{"bytes": None, "path": "a.png"}] * 10, label=[0, 1] * 5),
        "only the path 'a.png'",
    ),
    "no image": (
        column(image=[{"bytes": b"no", "path": None}] * 10, label=[0, 1] * 5),
        "not a readable image",
    ),
    "texts": (column(image=["a"] * 10, label=[0, 1] * 5), "neither encoded images nor arrays"),
    "ragged": (column(image=[[[1, 2], [3]]] * 10, label=[0, 1] * 5), "several shapes"),
    "large numbers": (column(image=[[[1, 256], [3, 4]]] * 10, label=[0, 1] * 5), "0 to 255"),
    "missing labels": (column(image=[IMAGE] * 10, label=[0, None] * 5), "5 images have no label"),
    "missing names": (column(image=[IMAGE] * 10, label=["a", None] * 5), "5 images have no label"),
    "unlabelled": (column(image=[IMAGE] * 10, label=[0, -1] * 5), "label -1"),
    "too few": (column(image=[IMAGE], label=[0]), "store a test split beside it"),
}


@pytest.mark.parametrize("row", BAD)
def test_bad_tables_are_refused(tmp_path: Path, row: str) -> None:
    write, message = BAD[row]
    write(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=message):
        load_data(tmp_path / "bad.parquet", data_dir=tmp_path)


def test_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    for k, name in enumerate(("label", "kind")):
        pq.write_table(pa.table({"image": [IMAGE] * 4, name: [0, 1] * 2}), tmp_path / f"train-{k}.parquet")
    with pytest.raises(InputError, match="its files have different columns"):
        load_data(tmp_path, data_dir=tmp_path)


def test_table_without_a_training_split_is_refused(tmp_path: Path) -> None:
    pq.write_table(table(random_images(4), np.arange(4) % 3), tmp_path / "test-0.parquet")
    with pytest.raises(InputError, match="no training split"):
        load_data(tmp_path, data_dir=tmp_path)


def test_class_seen_only_in_the_test_split_is_refused(tmp_path: Path) -> None:
    train, test = (
        pa.table({"image": [IMAGE] * 4, "label": labels}) for labels in (["a", "b"] * 2, ["a", "b", "c", "a"])
    )
    as_parquet(tmp_path / "mine", train, test)
    with pytest.raises(InputError, match="class 'c' has no training images"):
        load_data(tmp_path / "mine", data_dir=tmp_path)


def test_files_of_the_real_package(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    x, y = random_images(12), (np.arange(12) % 3).tolist()
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=CLASSES))
    images = [Image.fromarray(image) for image in x]
    made = datasets.Dataset.from_dict({"image": images, "label": y}, features=features)
    datasets.DatasetDict(train=made, test=made).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "parquet").mkdir()
    for split in ("train", "test"):
        made.to_parquet(str(tmp_path / "parquet" / f"{split}.parquet"))
    for folder in ("saved", "parquet"):
        data = load_data(tmp_path / folder, data_dir=tmp_path)
        assert data.classes == tuple(CLASSES)
        assert data.train.y.tolist() == y
        assert torch.equal(data.test.x.permute(0, 2, 3, 1), torch.from_numpy(x))
