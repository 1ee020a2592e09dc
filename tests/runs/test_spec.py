"""Specs: read from words, written as words, identified by what differs from the defaults."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.runs.spec import TrainSpec, split_words

ROUNDS: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 2**63 - 1),
    "lr": st.floats(1e-12, 1e12),
    "eps": st.floats(0, 1, exclude_min=True),
    "updates": st.integers(1, 10**12),
    "algorithm_args": st.none() | st.fixed_dictionaries({"carry": st.booleans()}),
    "norm": st.sampled_from(["l2", "linf"]),
    "model_args": st.none() | st.dictionaries(st.text(), st.integers() | st.text()),
}


@given(st.fixed_dictionaries({}, optional=ROUNDS))
def test_a_spec_survives_its_own_words(words: dict[str, Any]) -> None:
    spec = TrainSpec.of(words)
    stored = json.loads(json.dumps(spec.words()))
    assert TrainSpec.of(stored) == spec
    assert TrainSpec.of(stored).identity == spec.identity


@given(st.fixed_dictionaries({}, optional=ROUNDS))
def test_numbers_written_as_text_mean_the_same(words: dict[str, Any]) -> None:
    as_text = {k: repr(v) if type(v) in (int, float) else v for k, v in words.items()}
    assert TrainSpec.of(as_text) == TrainSpec.of(words)


def test_the_canonical_form_holds_only_what_differs_from_the_defaults() -> None:
    assert TrainSpec().canonical == '{"semantics": 2}'
    spec = TrainSpec(eps=0.1 + 0.2, algorithm="trades", norm="L2")
    expected = {"semantics": 2, "algorithm": "trades-10", "eps": 0.30000000000000004, "norm": "l2"}
    assert json.loads(spec.canonical) == expected


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


def test_every_setting_changes_the_identity() -> None:
    changes: dict[str, Any] = {"box": False, "deterministic": False, "compile": True}
    changes |= {"algorithm_args": {"carry": True}}
    changes |= {"model_args": {"a": 1}, "algorithm": "fast", "norm": "l2", "data": "mnist", "start": "zero"}
    changes |= {"momentum": 0.5, "warmup": 0.5, "ema": 0.5, "validation": 0.5}
    for name, setting in TrainSpec.settings().items():
        value = changes.get(name, 7 if not isinstance(setting.default, str) else "other")
        assert TrainSpec.of({name: value}).identity != TrainSpec().identity, name


def test_a_whole_number_is_exact_beyond_the_floats() -> None:
    assert TrainSpec.of({"seed": str(2**53 + 1)}).seed == 2**53 + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"epochs": 3, "updates": 5}, "both --epochs 3 and --updates 5"),
        ({"sede": 1}, "did you mean 'seed'"),
        ({"epochs": 0}, "--epochs 0.0 must be positive"),
        ({"epochs": "inf"}, "epochs: 'inf' must be finite"),
        ({"updates": 0}, "--updates 0 must be at least 1"),
        ({"updates": 2.5}, "updates: 2.5 must be a whole number"),
        ({"batch_size": 0}, "--batch-size 0"),
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
    ],
    ids=str,
)
def test_bad_settings_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        split_words(words)
    assert message in str(refusal.value)


def test_friendly_steps_follow_the_radius_it_is_judged_at() -> None:
    words = {"algorithm": "friendly", "eps": "16/255", "eval_eps": "8/255"}
    assert split_words(words)[0].alpha == 2 / 255
    assert split_words({**words, "alpha": 0.5})[0].alpha == 0.5
    assert split_words({**words, "algorithm": "vanilla"})[0].alpha is None
