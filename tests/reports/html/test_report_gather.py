"""What lies in folders is found, named and read; what is damaged is named too."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from freeat.cli.main import run as freeat
from freeat.errors import InputError
from freeat.files.documents import identity_of
from freeat.reports.html.answer import checks_section
from freeat.reports.html.gather import gather
from freeat.reports.html.page import make_document
from freeat.reports.html.robustness import largest_samples
from freeat.runs.results import StoredEvaluation
from report_store import reproduction
from small_runs import carry_out


def test_gather_finds_every_kind_of_result_in_nested_folders(store: Path) -> None:
    found = gather([store])
    assert len(found.runs) == 8
    assert {run.name for run in found.runs} >= {"free-4-60/seed-0", "vanilla-2-40/seed-1"}
    assert all(run.result is not None and run.history for run in found.runs)
    assert [study.name for study in found.studies] == ["study"]
    assert len(found.studies[0].results) == 12
    own = [one for one in found.evaluations if one.source is None]
    assert {one.model for one in own} == {"free-4-60/seed-0"}
    assert len(own) == 6
    assert len(found.evaluations) == 10
    probed = sorted((checks.model, checks.eps) for checks in found.checks)
    assert [model for model, _ in probed] == ["free-4-60/seed-0"] * 2 + ["vanilla-2-60/seed-0"]
    assert len({*probed}) == 3, "the attack and the transfer have other smallest radii"
    assert len(found.examples) == 1
    assert found.left_out == []


def test_run_is_named_by_its_folder(store: Path) -> None:
    run = store / "runs" / "free-4-60" / "seed-0"
    found = gather([run])
    assert [one.name for one in found.runs] == ["seed-0"]
    both = gather([run, store / "runs" / "vanilla-2-60"])
    assert [one.name for one in both.runs] == ["seed-0", "vanilla-2-60/seed-0", "vanilla-2-60/seed-1"]


def test_a_folder_given_twice_counts_once(store: Path) -> None:
    found = gather([store, store / "runs" / "free-4-60"])
    assert len(found.runs) == 8


def test_damaged_documents_are_left_out_with_their_names(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "store")
    broken = tmp_path / "store" / "runs" / "free-4-60" / "seed-0"
    (broken / "run.json").write_text("{")
    result = next((broken / "results").glob("*.json"))
    result.write_text('{"format": 99}')
    history = tmp_path / "store" / "runs" / "free-4-40" / "seed-0" / "history.jsonl"
    history.write_text("no JSON\n")
    found = gather([tmp_path / "store"])
    assert len(found.runs) == 6
    assert len(found.left_out) == 3
    text = "\n".join(found.left_out)
    assert "run.json is damaged" in text
    assert "upgrade freeat" in text
    assert f"{history}, line 1 is damaged" in text


def test_unfinished_run_is_read_up_to_its_last_record(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "runs" / "free-4-60" / "seed-0", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (run,) = gather([tmp_path / "run"]).runs
    assert run.result is None
    assert run.last == run.history[-1]


def test_folders_without_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("none", "does not exist"),
        ("file", "is not a folder"),
        ("empty", "nothing to report"),
    ):
        with pytest.raises(InputError, match=message):
            gather([tmp_path / name])
    (tmp_path / "empty" / "run.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        gather([tmp_path / "empty"])


def test_a_summary_alone_is_a_study(store: Path, tmp_path: Path) -> None:
    shutil.copy(store / "study" / "summary.json", tmp_path / "summary.json")
    (study,) = gather([tmp_path]).studies
    assert study.results == []
    assert study.summary is not None
    assert study.settings == study.summary.settings


def test_runs_below_a_reproduction_are_not_listed_again(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "runs" / "free-4-60", tmp_path / "runs")
    (tmp_path / "reproduction.json").write_text(json.dumps(reproduction()))
    found = gather([tmp_path])
    assert len(found.reproductions) == 1
    assert found.runs == []


def test_symbolic_links_are_not_followed(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "runs" / "free-4-60", tmp_path / "runs")
    (tmp_path / "runs" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(gather([tmp_path]).runs) == 2


def test_runs_in_digest_folders_are_named_by_their_settings(store: Path, tmp_path: Path) -> None:
    """As in the store of a reproduction; also two that differ in nothing a name says."""
    first, second = sorted(identity_of({"run": k}) for k in range(2))
    for digest in (first, second):
        shutil.copytree(store / "runs" / "free-4-60" / "seed-0", tmp_path / "runs" / digest)
    found = gather([tmp_path])
    name = f"digits l2 free-4 {found.runs[0].spec.model} n=60 seed 0"
    assert [run.name for run in found.runs] == [name, f"{name} ({second[:6]})"]
    assert {one.model for one in found.evaluations} == {name, f"{name} ({second[:6]})"}


def test_different_weights_of_one_run_have_different_names(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "kept"
    carry_out(run, algorithm="free-2", ema=0.9)
    for models in (f"{run} {run}@ema", f"mine={run}@ema", f"other={run}"):
        assert freeat(["evaluate", *models.split(), "--attack", "fgsm", "--eps", "0.3", "-n", "20"]) == 0
    found = gather([tmp_path])
    assert sorted(one.model for one in found.evaluations) == ["kept", "kept@ema"]
    assert sorted(checks.model for checks in found.checks) == ["kept", "kept@ema"]
    assert len(largest_samples(found.evaluations)) == 2


def test_overwritten_weights_file_counts_as_two_models(tmp_path: Path) -> None:
    for seed in (0, 1):
        carry_out(tmp_path / f"run-{seed}", algorithm="free-2", seed=seed)
        shutil.copy(tmp_path / f"run-{seed}" / "model.safetensors", tmp_path / "w.safetensors")
        command = f"evaluate mlp-w12@{tmp_path / 'w.safetensors'} --data digits --norm l2 --attack fgsm --eps 0.3 -n 20"
        assert freeat(command.split()) == 0
    found = gather([tmp_path / "w.results"])
    names = {one.model for one in found.evaluations}
    assert names == {f"w ({one.weights[:6]})" for one in found.evaluations}
    assert len(names) == 2
    assert {checks.model for checks in found.checks} == names


def test_attacks_are_compared_on_the_same_images_only(store: Path) -> None:
    """A larger radius on fewer images fools fewer, which says nothing of the model."""
    own = [one for one in gather([store]).evaluations if one.attack == "pgd-2" and one.source is None]
    wide = replace(own[0], eps=2 * own[0].eps, fooled=(), robust_accuracy=1.0)
    narrow = replace(own[0], fooled=tuple(range(40)), robust_accuracy=0.0)

    def failed(*evaluations: StoredEvaluation) -> int:
        found = checks_section([], evaluations, []).blocks
        return sum(check.passed is False for block in found for check in block.checks)

    elsewhere = replace(wide, identity=wide.identity | {"images": "0" * 64})
    assert failed(narrow, wide) == 1
    assert failed(narrow, elsewhere) == 0
    assert failed(narrow, replace(wide, attack="pgd-2 (last)")) == 0


def test_incomplete_documents_are_left_out_with_their_names(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "store")
    (tmp_path / "store" / "torn").mkdir()
    empty = [tmp_path / "store" / "study" / "study.json", tmp_path / "store" / "torn" / "reproduction.json"]
    empty += [next((tmp_path / "store").glob("runs/free-4-60/seed-0/results/*.json"))]
    for path in empty:
        about = json.loads(path.read_text()) if path.is_file() else {}
        kept = {name: about[name] for name in ("checks", "robust_accuracy") if name in about}
        path.write_text(json.dumps({"format": 1, **kept}))
    found = gather([tmp_path / "store"])
    text = "\n".join(found.left_out)
    assert all(str(path) in text for path in empty)
    assert len(found.left_out) == 3
    make_document(found, [tmp_path / "store"])
