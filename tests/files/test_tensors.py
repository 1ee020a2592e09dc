"""Checkpoints: complete or skipped, verified by checksum, never executed."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from freeat.errors import InputError
from freeat.files.documents import NewerFormat
from freeat.files.tensors import KEPT, Checkpoints, load_tensors, save_tensors


def filled(folder: Path, *updates: int) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for update in updates:
        checkpoints.save(update, {"w": torch.full((3,), float(update))}, {"update": update})
    return checkpoints


def newest_update(checkpoints: Checkpoints) -> int:
    found = checkpoints.newest(dict)
    assert found is not None
    tensors, facts = found
    assert torch.equal(tensors["w"], torch.full((3,), float(facts["update"])))
    return int(facts["update"])


def test_tensors_of_every_dtype_round_trip(tmp_path: Path) -> None:
    tensors = {
        "bf16": torch.randn(3, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0)),
        "scalar": torch.tensor(7),
        "empty": torch.zeros(0, 4),
        "channels_last": torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "view": torch.arange(10.0)[::2],
        "special": torch.tensor([float("inf"), -0.0, float("nan")]),
    }
    save_tensors(tmp_path / "a.safetensors", tensors, {"update": 3})
    loaded, facts = load_tensors(tmp_path / "a.safetensors")
    assert facts == {"update": 3}
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name].nan_to_num(5), tensor.nan_to_num(5)), name


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path / "c", 9, 10, 100, 1000)
    assert newest_update(checkpoints) == 1000
    assert len(list((tmp_path / "c").glob("*.safetensors"))) == KEPT
    checkpoints.clear()
    assert checkpoints.newest(dict) is None
    assert list((tmp_path / "c").iterdir()) == []


def test_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest(dict) is None
    Checkpoints(tmp_path / "none").clear()


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": _flip,
    "a torn file": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "an empty file": lambda path: path.write_bytes(b""),
    "no tensors": lambda path: path.unlink(),
    "torn facts": lambda path: path.with_suffix(".json").write_text('{"format": 1, "sha'),
    "facts without a digest": lambda path: path.with_suffix(".json").write_text('{"format": 1}'),
    "facts without a file": lambda path: path.with_suffix(".json").write_text("{}"),
    "facts of another update": lambda path: _change(path.with_suffix(".json"), facts={"update": 7}),
    "facts of another type": lambda path: _change(path.with_suffix(".json"), facts=[1]),
    "facts with a field too many": lambda path: _change(
        path.with_suffix(".json"), facts={"update": 8, "x": 1}
    ),
    "another digest": lambda path: _change(path.with_suffix(".json"), sha256=None),
    "a folder for the tensors": lambda path: (path.unlink(), path.mkdir()),
    "a folder for the facts": lambda path: (
        path.with_suffix(".json").unlink(),
        path.with_suffix(".json").mkdir(),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_newest_checkpoint_is_named_and_the_previous_used(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = filled(tmp_path, 4, 8)
    damage(tmp_path / "update-000000008.safetensors")
    assert newest_update(checkpoints) == 4
    assert len(caplog.records) == 1
    assert "damaged checkpoint skipped" in caplog.text
    assert "update-000000008" in caplog.text
    damage(tmp_path / "update-000000004.safetensors")
    assert checkpoints.newest(dict) is None
    checkpoints.clear()
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_checkpoints_are_not_taken_for_them(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, 4)
    (tmp_path / "update-latest.json").write_text("{}")
    assert checkpoints.latest_update == 4
    assert newest_update(checkpoints) == 4


def test_a_checkpoint_of_a_newer_version_is_refused_not_skipped(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, 4, 8)
    path = tmp_path / "update-000000008.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(NewerFormat, match="upgrade freeat"):
        checkpoints.newest(dict)


def test_unfinished_checkpoint_is_ignored_and_removed(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path, 4)
    (tmp_path / "update-000000006.safetensors").write_bytes(b"tensors without facts")
    (tmp_path / ".update-000000006.json.1a2b.tmp").write_text("half")
    (tmp_path / "notes.txt").write_text("the user's own")
    assert newest_update(checkpoints) == 4
    filled(tmp_path, 7)
    assert newest_update(checkpoints) == 7
    kept = [f"update-00000000{n}.{kind}" for n in (4, 7) for kind in ("json", "safetensors")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", *kept]


class _Hostile:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("code was executed",)


def test_pickled_weights_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(pickle.dumps(_Hostile()))
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_tensors(path)


def test_equal_tensors_are_equal_files(tmp_path: Path) -> None:
    tensors = {name: torch.arange(4.0) for name in "zyxabc"}
    contents = set()
    for _ in range(8):
        save_tensors(tmp_path / "a.safetensors", tensors, {"update": 3, "seed": 4})
        contents.add((tmp_path / "a.safetensors").read_bytes())
    assert len(contents) == 1


def test_safetensors_of_other_programs_are_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2)}, tmp_path / "a.safetensors", {"format": "pt"})
    assert load_tensors(tmp_path / "a.safetensors")[1] == {}
    with pytest.raises(InputError, match="no such file"):
        load_tensors(tmp_path / "none.safetensors")
