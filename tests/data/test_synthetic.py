"""The published readers read the synthetic data sets."""

from pathlib import Path

import pytest

from freeat.data import load_data
from freeat.data.catalogue import SOURCES
from freeat.data.synthetic import WRITERS, write_synthetic


@pytest.mark.parametrize("name", WRITERS)
def test_the_real_reader_reads_enough_images(name: str, tmp_path: Path) -> None:
    write_synthetic(tmp_path, 10)
    data = load_data(tmp_path / SOURCES[name].layouts[0].path, data_dir=tmp_path)
    assert len(data.train) >= 10
    assert len(data.test) >= 10
    assert data.shape == SOURCES[name].shape
    assert data.augment == SOURCES[name].augment
    assert any("not verified" in note for note in data.notes)


def test_existing_data_sets_are_kept(tmp_path: Path) -> None:
    (tmp_path / "svhn").mkdir()
    write_synthetic(tmp_path, 4)
    assert list((tmp_path / "svhn").iterdir()) == []
    before = (tmp_path / "cifar-100-python" / "train").read_bytes()
    write_synthetic(tmp_path, 9)
    assert (tmp_path / "cifar-100-python" / "train").read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
