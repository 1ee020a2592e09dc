"""Specs: reading, writing and identifying settings."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.runs.spec import (
    EvalSpec,
    TrainSpec,
    canonical_parts,
    parse_parts,
    read_yaml,
    split_parts,
    split_settings,
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 2**63 - 1),
    "lr": st.floats(1e-12, 1e12),
    "eps": st.floats(0, 1, exclude_min=True),
    "updates": st.integers(1, 10**12),
    "algorithm_args": st.none() | st.fixed_dictionaries({"carry": st.booleans()}),
    "norm": st.sampled_from(["l2", "linf"]),
    "model_args": st.none() | st.dictionaries(st.text(), st.integers() | st.text()),
}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_a_spec_is_read_back_from_its_settings(settings: dict[str, Any]) -> None:
    spec = TrainSpec.of(settings)
    stored = json.loads(json.dumps(spec.settings()))
    assert TrainSpec.of(stored) == spec
    assert TrainSpec.of(stored).identity == spec.identity


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_numbers_as_text_are_equivalent(settings: dict[str, Any]) -> None:
    as_text = {k: repr(v) if type(v) in (int, float) else v for k, v in settings.items()}
    assert TrainSpec.of(as_text) == TrainSpec.of(settings)


def test_the_identity_omits_defaults() -> None:
    assert TrainSpec(model="resnet18").facts == {"semantics": 3}
    spec = TrainSpec(model="resnet18", eps=0.1 + 0.2, algorithm="trades", norm="L2")
    expected = {"semantics": 3, "algorithm": "trades-10", "eps": 0.30000000000000004, "norm": "l2"}
    assert spec.facts == expected


@pytest.mark.parametrize(
    "same",
    [
        ({"eps": "8/255"}, {"eps": 8 / 255}),
        ({"norm": "LINF"}, {"norm": "linf"}),
        ({"algorithm": "free"}, {"algorithm": "free-4"}),
        ({"algorithm": "TRADES"}, {"algorithm": "vanilla-trades-10"}),
        ({"updates": "1e3"}, {"updates": 1000}),
        ({"lr": 0.1}, {}),
        ({"algorithm_args": {"carry": False}}, {}),
    ],
    ids=str,
)
def test_spellings_share_an_identity(same: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = same
    assert TrainSpec.of(one).identity == TrainSpec.of(other).identity


def test_the_identity_does_not_depend_on_folders() -> None:
    here, there = ({"data": f"{place}/photos", "init_from": f"{place}/run"} for place in ("/a", "b/c"))
    assert TrainSpec.of(here).identity == TrainSpec.of(there).identity
    assert TrainSpec.of(here).identity != TrainSpec.of({**here, "data": "/a/other-images"}).identity


def test_the_default_network_is_auto_and_named_ones_keep_their_identity() -> None:
    """``resnet18`` was the default once, so identities still leave it out."""
    assert TrainSpec().model == "auto"
    assert TrainSpec().facts == TrainSpec(model="resnet18").facts | {"model": "auto"}
    assert TrainSpec(model="cnn").facts == TrainSpec(model="resnet18").facts | {"model": "cnn"}


@pytest.mark.parametrize(("norm", "usual"), [("linf", 8 / 255), ("L2", 128 / 255)])
def test_the_default_radius_follows_the_norm(norm: str, usual: float) -> None:
    spec = TrainSpec.of({"norm": norm})
    assert spec == TrainSpec.of({"norm": norm, "eps": usual})
    assert spec.eps == TrainSpec(norm=norm).eps == usual
    for eps in (8 / 255, 128 / 255, 0.5):
        given = TrainSpec.of({"norm": norm, "eps": eps})
        assert given.eps == eps
        assert TrainSpec.of(given.settings()) == given
    with pytest.raises(InputError, match="eps: None"):
        TrainSpec.of({"eps": None})


def test_the_default_radius_of_l2_leaves_identities_as_they_are() -> None:
    """Linf 8/255 was the default of both norms once, so identities still leave it out, and settings in Linf."""
    assert TrainSpec(model="resnet18").facts == {"semantics": 3}
    assert TrainSpec(model="resnet18", norm="l2", eps=8 / 255).facts == {"semantics": 3, "norm": "l2"}
    assert TrainSpec(norm="l2").facts["eps"] == 128 / 255
    assert "eps" not in TrainSpec().settings()
    assert TrainSpec(norm="l2").settings()["eps"] == 128 / 255


def test_every_setting_changes_the_identity() -> None:
    changes: dict[str, Any] = {
        "box": False,
        "deterministic": False,
        "compile": True,
        "skip_unreadable": True,
        "stream": True,
    }
    changes |= {"algorithm_args": {"carry": True}}
    changes |= {"model_args": {"a": 1}, "algorithm": "fast", "norm": "l2", "data": "mnist", "start": "zero"}
    changes |= {"momentum": 0.5, "warmup": 0.5, "ema": 0.5, "validation": 0.5}
    changes |= {"awp": 0.5, "label_smoothing": 0.5, "swa": True}
    for name, setting in TrainSpec.fields().items():
        value = changes.get(name, 7 if not isinstance(setting.default, str) else "other")
        assert TrainSpec.of({name: value}).identity != TrainSpec().identity, name


def test_large_integers_are_exact() -> None:
    assert TrainSpec.of({"seed": str(2**53 + 1)}).seed == 2**53 + 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 3, "updates": 5}, "both --epochs 3 and --updates 5"),
        ({"sede": 1}, "did you mean 'seed'"),
        ({"epochs": 0}, "--epochs 0.0 must be positive"),
        ({"epochs": "inf"}, "epochs: 'inf' must be finite"),
        ({"epochs": "ten"}, "epochs: 'ten' is not a number: write one such as 10 or 0.1"),
        ({"batch_size": "many"}, "batch_size: 'many' is not a number: write a whole one such as 10"),
        ({"coefficient": "six"}, "coefficient: 'six' is not a number: write one such as 10 or 0.1"),
        ({"alpha": "small"}, "alpha: 'small' is not a number: write one such as 0.1 or 8/255"),
        ({"updates": 0}, "--updates 0 must be at least 1"),
        ({"updates": 2.5}, "updates: 2.5 must be a whole number"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"replay": 0}, "--replay 0 must be at least 1"),
        ({"train_size": 1}, "--train-size 1 must be at least 2"),
        ({"validation": -0.1}, "--validation -0.1"),
        ({"warmup": 1.5}, "between 0 and 1"),
        ({"lr": 0}, "--lr 0.0 must be positive"),
        ({"lr": "nan"}, "lr: 'nan' must be finite"),
        ({"momentum": 1}, "must lie in"),
        ({"weight_decay": -1}, "must not be negative"),
        ({"threads": 0}, "--threads 0"),
        ({"seed": -1}, "between 0 and"),
        ({"seed": 2**63}, "between 0 and"),
        ({"seed": "nan"}, "seed: 'nan' must be a whole number"),
        ({"seed": None}, "seed: None"),
        ({"seed": True}, "seed: True"),
        ({"eps": "8/0"}, "eps: '8/0' is not a number"),
        ({"eps": -1}, "eps: -1 is not a radius"),
        ({"eps": 0}, "use --algorithm erm"),
        ({"box": "yes"}, "box: 'yes' must be true or false"),
        ({"norm": None}, "norm: None must be text"),
        ({"norm": "l3"}, "did you mean 'l2'"),
        ({"algorithm": "erm", "start": "unifrom"}, "did you mean 'uniform'"),
        ({"model_args": [1]}, "must be key: value pairs"),
        ({"algorithm": "fre-4"}, "did you mean 'free-4'"),
        ({"eval_every": 0}, "--eval-every 0 must be at least 1"),
        ({"eval_size": -3}, "--eval-size -3"),
        ({"final_size": 0}, "--final-size 0"),
        ({"eval_alpha": 0}, "--eval-alpha 0.0 must be positive"),
        ({"eval_start": "randius"}, "did you mean 'radius'"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        split_settings(settings)
    assert message in str(refusal.value)


def test_the_step_of_friendly_follows_the_evaluation_radius() -> None:
    settings = {"algorithm": "friendly", "eps": "16/255", "eval_eps": "8/255"}
    assert split_settings(settings)[0].alpha == 2 / 255
    assert split_settings({**settings, "alpha": 0.5})[0].alpha == 0.5
    assert split_settings({**settings, "algorithm": "vanilla"})[0].alpha is None


def test_yaml_settings_are_read(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("algorithm: free-trades-4\neps: 8/255\nbatch-size: 64\nlr: 1e-2\neval-every: 5\n")
    training, evaluation = split_settings(read_yaml(file))
    assert (training.eps, training.batch_size, training.lr) == (8 / 255, 64, 0.01)
    assert evaluation == EvalSpec(eval_every=5)
    for empty in ("", "# nothing yet\n"):
        file.write_text(empty)
        assert split_settings(read_yaml(file)) == (TrainSpec(), EvalSpec())


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


@pytest.mark.parametrize(
    ("settings", "label", "weights"),
    [
        ({}, "free-4", ("model",)),
        ({"awp": 0.01, "ema": 0.999}, "free-4 + awp + ema", ("model", "ema")),
        ({"ema": 0.9}, "free-4 + ema 0.9", ("model", "ema")),
        ({"swa": True}, "free-4 + swa", ("slow",)),
        ({"proximal": 0}, "free-4 + swa", ("slow",)),
        ({"proximal": "5e-4", "label_smoothing": 0.1}, "free-4 + label-smoothing + proximal", ("slow",)),
        ({"proximal": 0.1, "clip_grad": 1}, "free-4 + clip-grad + proximal 0.1", ("slow",)),
    ],
    ids=str,
)
def test_a_label_says_what_is_on(settings: dict[str, Any], label: str, weights: tuple[str, ...]) -> None:
    spec = TrainSpec.of(settings)
    assert (spec.label, spec.weights) == (label, weights)
    assert "ema" not in spec.label_of("model")


def test_parts_are_read_as_they_are_written() -> None:
    assert split_parts("free-4+awp=0.005 + ema") == ("free-4", {"awp": 0.005, "ema": 0.999})
    assert split_parts("fast") == ("fast", {})
    assert parse_parts("none") == {}
    assert canonical_parts("FREE+ema+awp=0.01") == "free-4+awp+ema"
    assert canonical_parts("fast+swa+awp=0.005") == "fast+awp=0.005+swa"
    for text, message in (
        ("free-4+apw", "did you mean 'awp'"),
        ("free-4+swa=1", "swa has no value"),
        ("free-4+swa+proximal", "given twice"),
    ):
        with pytest.raises(InputError, match=message):
            split_parts(text)
    with pytest.raises(InputError, match="--swa is --proximal 0"):
        TrainSpec.of({"swa": True, "proximal": 0.1})
