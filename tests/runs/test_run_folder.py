"""A run's folder: its files are read back, and other folders are refused unchanged."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from freeat.errors import InputError
from freeat.files.documents import plain, read_json, write_json
from freeat.files.locks import LEASE
from freeat.runs.folder import RunFolder
from freeat.runs.spec import EvalSpec, TrainSpec
from made_records import make_description, make_record, make_result

SPEC = TrainSpec(algorithm="fast", eps=0.1)
EVALUATION = EvalSpec(eval_every=5)


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.describe(make_description(SPEC, EVALUATION))
    return folder


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_description_is_read_back(tmp_path: Path) -> None:
    folder = begun(tmp_path / "deep" / "run")
    assert folder.exists
    assert (folder.spec, folder.evaluation) == (SPEC, EVALUATION)
    assert folder.description.updates == 10
    assert read_json(folder.path / "run.json", format=1)["spec"]["batch_size"] == 128
    folder.check(SPEC, EVALUATION)


@pytest.mark.parametrize(
    ("spec", "evaluation", "named"),
    [
        (replace(SPEC, eps=0.2), EVALUATION, "eps 0.1 → 0.2"),
        (replace(SPEC, seed=1), EVALUATION, "seed 0 → 1"),
        (SPEC, EvalSpec(eval_every=6), "eval_every 5 → 6"),
    ],
)
def test_a_folder_of_another_spec_is_refused(
    tmp_path: Path, spec: TrainSpec, evaluation: EvalSpec, named: str
) -> None:
    folder = begun(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="run of another spec") as refusal:
        folder.check(spec, evaluation)
    assert named in str(refusal.value)
    assert contents(tmp_path) == before


def test_a_folder_of_older_semantics_is_refused(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    write_json(tmp_path / "run.json", {**plain(folder.description), "semantics": 1}, format=1)
    with pytest.raises(InputError, match="older semantics"):
        folder.check(SPEC, EVALUATION)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(InputError, match="is not a run folder"):
        RunFolder(tmp_path).check(SPEC, EVALUATION)
    with pytest.raises(InputError, match="is not a run folder"):
        RunFolder(tmp_path / "thesis.tex").check(SPEC, EVALUATION)
    with pytest.raises(InputError, match=r"has no run\.json"):
        RunFolder(tmp_path).spec  # noqa: B018
    assert contents(tmp_path) == {"thesis.tex": b"dear"}


@pytest.mark.parametrize("left", [LEASE, ".run.json.0a1b2c3d.tmp"])
def test_a_run_killed_before_its_description_can_start_again(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("")
    folder = RunFolder(tmp_path)
    folder.check(SPEC, EVALUATION)
    folder.remove_unfinished()
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_description_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"identity": "x", "semantics": 2}, format=1)
    with pytest.raises(InputError, match=r"run.json is damaged: .*missing required field `spec`"):
        RunFolder(tmp_path).check(SPEC, EVALUATION)


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*choose another --out"):
        RunFolder(tmp_path / "file" / "run").check(SPEC, EVALUATION)


def test_history_is_appended_and_truncated(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert list(folder.history()) == []
    records = [make_record(update=1, collapse="ε\u2028"), make_record(update=2, training_loss=math.nan)]
    lengths = [folder.append(record) for record in records]
    assert lengths[-1] == folder.history_length
    assert str(list(folder.history())) == str(records)  # NaN comes back, and equals nothing
    with folder.history_path.open("ab") as file:
        file.write('{"update": 3, "note": "ε'.encode()[:-1])  # torn in the middle of a letter
    assert str(list(folder.history())) == str(records)
    folder.truncate(lengths[0])
    assert list(folder.history()) == records[:1]
    folder.append(make_record(update=9))
    assert [record.update for record in folder.history()] == [1, 9]


def test_a_history_shorter_than_its_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    length = folder.append(make_record(update=1))
    with pytest.raises(InputError, match="shorter than its checkpoint says"):
        folder.truncate(length + 1)
    assert folder.history_length == length


def test_models_and_results_are_read_back(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    assert folder.result is None
    with pytest.raises(InputError, match="has not finished"):
        folder.weights()
    folder.publish_model("model", {"w": torch.arange(3.0)}, 4)
    assert torch.equal(folder.weights()["w"], torch.arange(3.0))
    assert folder.weights_update() == 4
    with pytest.raises(InputError, match="no weights called 'best': it has model"):
        folder.weights("best")
    result = make_result(make_record(update=4))
    folder.publish_result(result)
    assert folder.result == result
    (tmp_path / "result.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(InputError, match="upgrade freeat"):
        folder.result  # noqa: B018
