"""References to models, also with an "@" in a folder's path."""

from pathlib import Path

import pytest

from freeat.runs.open import Reference, titles


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run and an exported folder in a folder whose name has an "@", and a run beside them."""
    for file in (
        "me@work/free/run.json",
        "me@work/out/freeat.json",
        "me@work/free@best/run.json",
        "erm/run.json",
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "where", "weights", "stored"),
    [
        ("erm", "erm", "", True),
        ("erm@ema", "erm", "ema", True),
        ("me@work/free", "me@work/free", "", True),
        ("me@work/free@ema", "me@work/free", "ema", True),
        ("me@work/free@best", "me@work/free@best", "", True),
        ("me@work/free@best@ema", "me@work/free@best", "ema", True),
        ("me@work/out", "me@work/out", "", True),
        ("resnet18@me@work/w.pt", "resnet18", "me@work/w.pt", False),
        ("package.nets:make@w.pt", "package.nets:make", "w.pt", False),
        ("nowhere", "nowhere", "", False),
    ],
)
def test_a_reference_is_split_into_folder_and_weights(
    text: str, where: str, weights: str, stored: bool
) -> None:
    found = Reference.of(text)
    assert found == Reference(where, weights)
    assert (found.folder is not None) == stored
    assert Reference.of(Path(text)) == found


def test_an_existing_folder_is_not_read_as_an_import_path() -> None:
    Path("nets:make").mkdir()
    assert Reference.of("nets:make@w.pt").names_code
    Path("nets:make/run.json").touch()
    assert not Reference.of("nets:make@w.pt").names_code
    assert not Reference.of("resnet18@w.pt").names_code


def test_titles_of_paths_with_an_at_sign() -> None:
    assert titles(["me@work/free", "me@work/free@ema", "me@work/free@best"]) == [
        "free",
        "free@ema",
        "free@best",
    ]
