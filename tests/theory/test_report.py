"""Hypotheses, sweeps and the document that a command prints."""

import json
import math
from dataclasses import asdict, replace

import pytest

from freeat.errors import InputError
from freeat.files.documents import decoded, plain
from freeat.theory import (
    HYPOTHESES,
    BoundDocument,
    Problem,
    bound,
    bound_document,
    bound_lines,
    checked_hypotheses,
    free_bound,
    hypotheses,
    sweep,
    violations,
)

P = Problem(beta=2.0, c=0.1, L=1.0, L_w=1.0, eps=0.5, psi=4.0, b=10, n=1000)
RUN = {"alpha": 0.2, "m": 4, "T": 1000}
ALL = asdict(P) | RUN


def test_hypotheses_have_unique_keys_and_only_their_algorithms() -> None:
    assert len({h.key for h in HYPOTHESES}) == len(HYPOTHESES)
    keys = {name: {h.key for h in hypotheses(name)} for name in ("vanilla", "fast", "free")}
    assert keys["vanilla"] - keys["free"] == {"exact_inner_max"}
    assert (
        keys["fast"]
        == keys["free"]
        == keys["vanilla"] - {"exact_inner_max"}
        | {
            "psi_positive",
            "constant_attack_step",
            "fresh_start",
        }
    )


def test_hypotheses_are_checked_against_facts() -> None:
    facts = {"plain_sgd": False, "l2_ball": True, "exact_inner_max": False}
    assert [h.key for h in violations("free", facts)] == ["plain_sgd"]
    assert [h.key for h in violations("vanilla", facts)] == ["plain_sgd", "exact_inner_max"]
    status = {h.key: h.status for h in checked_hypotheses("free", facts)}
    assert status.pop("plain_sgd") == "violated"
    assert status.pop("l2_ball") == "holds"
    assert set(status.values()) == {"unknown"}
    assert {h.status for h in checked_hypotheses("free", {})} == {"unknown"}
    with pytest.raises(InputError, match="did you mean 'plain_sgd'"):
        violations("free", {"plain_sdg": False})
    with pytest.raises(InputError, match="unknown algorithm"):
        violations("trades", {})


@pytest.mark.parametrize(
    ("algorithm", "unused"), [("vanilla", {"psi", "alpha", "m"}), ("fast", {"m"}), ("free", set())]
)
def test_every_parameter_is_accepted_and_the_unused_are_named(algorithm: str, unused: set[str]) -> None:
    document = bound_document(algorithm, ALL)
    assert set(document.unused) == unused
    assert document.parameters.keys() | document.unused.keys() == ALL.keys()
    at = bound(algorithm, P, T=1000, alpha=0.2, m=4)
    assert (document.lam, document.bound, document.t0) == (at.lam, at.value, at.t0)
    assert decoded(json.loads(json.dumps(plain(document), allow_nan=False)), BoundDocument, "") == document
    needed = {name: value for name, value in ALL.items() if name not in unused}
    assert bound_document(algorithm, needed).bound == document.bound
    text = "\n".join(bound_lines(document))
    assert all(f"{name} = " in text for name in ALL)
    assert (f"unused by {algorithm}" in text) == bool(unused)


def test_missing_parameters_are_refused() -> None:
    for name in ("alpha", "m", "psi"):
        with pytest.raises(InputError, match=f"{name} is missing"):
            bound_document("free", {**ALL, name: None})


def test_notes_say_vacuous_and_t0_outside() -> None:
    vacuous = bound_document("vanilla", ALL)
    assert vacuous.vacuous
    assert "note: vacuous" in "\n".join(bound_lines(vacuous))
    assert not vacuous.t0_outside
    below = bound_document("fast", ALL)
    assert below.t0 is not None
    assert below.t0 < 1
    assert any("below [1, 1000]" in note for note in below.notes)
    above = bound_document("free", {**ALL, "L": 1e6})
    assert above.t0 is not None
    assert above.t0 > above.steps == 250
    assert any("b·batches/n = 2.5" in note for note in above.notes)
    inside = bound_document("free", ALL)
    assert inside.notes == ()
    cut = bound_document("free", {**ALL, "T": 1001})
    assert any("m does not divide T = 1001" in note for note in cut.notes)
    wasteful = bound_document("free", {**ALL, "L_w": 3.0})
    assert any("pass L_w = 1" in note for note in wasteful.notes)


def test_the_status_of_each_hypothesis_reaches_the_lines() -> None:
    document = bound_document("free", ALL, facts={"plain_sgd": False, "l2_ball": True})
    status = {h.key: h.status for h in document.hypotheses}
    assert (status["plain_sgd"], status["l2_ball"], status["smooth"]) == ("violated", "holds", "unknown")
    lines = bound_lines(document)
    assert any(line.startswith("  ✗ plain_sgd") for line in lines)
    assert any(line.startswith("  ✓ l2_ball") for line in lines)


def test_numbers_beyond_every_float_stay_json() -> None:
    document = bound_document("free", {**ALL, "psi": 1e30, "m": 50})
    assert document.lam is None
    assert document.log10_lam is not None
    assert document.log10_lam > 1000
    json.dumps(plain(document), allow_nan=False)
    assert any(line.startswith("  lambda = 10^1") for line in bound_lines(document))


@pytest.mark.parametrize(
    ("parameter", "values"),
    [("T", [100, 1000]), ("n", [100, 10**5]), ("m", [1, 8]), ("alpha", [0.1, 1.0]), ("eps", [0.1, 1.0])],
)
def test_a_sweep_holds_the_three_bounds_at_every_value(parameter: str, values: list[float]) -> None:
    rows = sweep(ALL, parameter, values)
    assert [(row.value, row.algorithm) for row in rows] == [
        (value, name) for value in values for name in ("vanilla", "fast", "free")
    ]
    json.dumps(plain(rows), allow_nan=False)
    run = {"T": 1000, "alpha": 0.2, "m": 4}
    p = replace(P, **{parameter: values[1]}) if parameter in ("n", "eps") else P
    run |= {parameter: values[1]} if parameter in run else {}
    assert rows[-1].bound == free_bound(p, **run).value


def test_a_sweep_refuses_an_unknown_parameter() -> None:
    with pytest.raises(InputError, match="did you mean 'alpha'"):
        sweep(ALL, "alhpa", [1.0])


def test_t0_outside_is_decided_where_rounding_would_hide_it() -> None:
    p = replace(P, beta=100.0, psi=1000.0)
    at = free_bound(p, T=1000, alpha=1.0, m=10)
    assert at.log_t0 == pytest.approx(math.log(at.steps), abs=1e-12)
    assert at.t0_above
    assert at.t0_outside
