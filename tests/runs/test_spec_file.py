"""Settings from YAML files: read as people write them; every mistake is named with its line."""

from pathlib import Path

import pytest

from freeat.errors import InputError
from freeat.runs.spec import EvalSpec, TrainSpec, split_words
from freeat.runs.spec_file import read_yaml


def test_yaml_is_read_as_people_write_it(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("algorithm: free-trades-4\neps: 8/255\nbatch-size: 64\nlr: 1e-2\neval-every: 5\n")
    training, evaluation = split_words(read_yaml(file))
    assert (training.eps, training.batch_size, training.lr) == (8 / 255, 64, 0.01)
    assert evaluation == EvalSpec(eval_every=5)
    for empty in ("", "# nothing yet\n"):
        file.write_text(empty)
        assert split_words(read_yaml(file)) == (TrainSpec(), EvalSpec())


BAD: dict[str, tuple[bytes, str]] = {
    "unfinished": (b"lr: 0.1\na: [", "is not YAML, line 2: "),
    "list": (b"- 1\n- 2", "holds a list, not settings"),
    "code": (b"lr: 0.1\nx: !!python/object/apply:os.system ['true']", "is not YAML, line 2: "),
    "no text": (b"lr: 0.1\n\xff\xfe\x00", "is not YAML, line 2: no UTF-8 text"),
    "control character": (b"lr: 0.1\nseed: 1\n\x07", "is not YAML, line 3: "),
    "tab": (b"lr: 0.1\n\tseed: 1", "is not YAML, line 2: "),
    "two documents": (b"lr: 0.1\n---\nlr: 0.2", "is not YAML, line 2: "),
    "twice": (b"lr: 0.1\nseed: 1\nlr: 0.2", "line 3: 'lr' is given again, after line 1"),
    "twice, spelt otherwise": (b"batch-size: 3\nbatch_size: 4", "line 2: 'batch_size' is given again"),
    "twice inside": (
        b"model-args:\n  depth: 3\n  width: 4\n  depth: 5",
        "line 4: 'depth' is given again, after line 2",
    ),
}


@pytest.mark.parametrize("row", BAD)
def test_bad_yaml_is_refused(tmp_path: Path, row: str) -> None:
    content, message = BAD[row]
    file = tmp_path / "spec.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError) as refusal:
        read_yaml(file)
    assert message in str(refusal.value)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_yaml_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_yaml(tmp_path / "none.yaml")
