"""Titles of models: the shortest distinct end of their path."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.runs.open import titles


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs, as two comparisons and two trainings leave them, with some exported."""
    runs = ("one/runs/free-4", "one/runs/vanilla-10", "two/runs/free-4", "runs/free", "runs/erm")
    for run in runs[:3]:
        (tmp_path / run / "seed-0").mkdir(parents=True)
        (tmp_path / run / "seed-0" / "run.json").touch()
    for run in runs[3:]:
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "run.json").touch()
    (tmp_path / "exports" / "erm").mkdir(parents=True)
    (tmp_path / "exports" / "erm" / "freeat.json").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


FREE, VANILLA, OTHER = "one/runs/free-4/seed-0", "one/runs/vanilla-10/seed-0", "two/runs/free-4/seed-0"


@pytest.mark.parametrize(
    ("references", "called"),
    [
        ([FREE], ["seed-0"]),
        (["runs/free", "runs/erm"], ["free", "erm"]),
        ([FREE, VANILLA], ["free-4/seed-0", "vanilla-10/seed-0"]),
        ([FREE, VANILLA, "runs/erm"], ["free-4/seed-0", "vanilla-10/seed-0", "erm"]),
        ([FREE, OTHER, VANILLA], [FREE, OTHER, "vanilla-10/seed-0"]),
        (["runs/erm", "exports/erm"], ["runs/erm", "exports/erm"]),
        ([FREE, f"{FREE}@ema"], ["seed-0", "seed-0@ema"]),
        ([f"{FREE}@ema", f"{VANILLA}@ema"], ["free-4/seed-0@ema", "vanilla-10/seed-0@ema"]),
        (["resnet18@mine.pt"], ["mine"]),
        (["resnet18@a/last.pt", "resnet18@b/last.pt"], ["a/last", "b/last"]),
        (["runs/erm", "mlp@other/erm.pt"], ["runs/erm", "other/erm"]),
    ],
    ids=str,
)
def test_titles_are_the_shortest_distinct_path_ends(
    references: list[str], called: list[str], here: Path
) -> None:
    assert titles(references) == called
    assert titles(references[::-1]) == called[::-1]


def test_paths_to_the_same_model_have_one_title(here: Path) -> None:
    assert titles([FREE, f"./{FREE}", str(here / FREE)]) == ["seed-0"] * 3


def test_a_taken_title_is_not_used_again(here: Path) -> None:
    assert titles([VANILLA], taken=["seed-0"]) == ["vanilla-10/seed-0"]


def test_indistinct_paths_are_titled_by_their_last_part(here: Path) -> None:
    assert titles(["mlp@w.pt", "mlp@w.safetensors"]) == ["w", "w"]


@given(st.sets(st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map("/".join), min_size=2))
def test_titles_are_distinct_path_ends(paths: set[str]) -> None:
    files = sorted(paths)
    called = titles([f"mlp@{path}.pt" for path in files])
    for path, name in zip(files, called, strict=True):
        assert Path(path).absolute().as_posix().endswith(f"/{name}")
    assert len({*called}) == len(called)
