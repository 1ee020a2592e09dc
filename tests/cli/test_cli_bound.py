"""``freeat bound``: the paper's formulas from the command line, and from a run."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from freeat.cli.bound import bound
from freeat.cli.main import run
from freeat.errors import InputError
from small_runs import carry_out

GIVEN = {
    "--beta": "2",
    "--c": "1/10",
    "--lipschitz": "1",
    "--lipschitz-w": "0.9",
    "--psi": "4",
    "--eps": "0.5",
    "--alpha-delta": "0.2",
    "--m": "4",
    "--batch-size": "10",
    "--n": "1000",
    "--updates": "1000",
}


def invoke(*options: str, given: dict[str, str] = GIVEN) -> str:
    arguments = [*options, *(part for pair in given.items() for part in pair)]
    return CliRunner().invoke(bound, arguments, catch_exceptions=False, standalone_mode=False).output


def test_json_holds_lambda_bound_and_t0_of_theorem_4() -> None:
    found = json.loads(invoke("--algorithm", "free", "--json"))
    lam = 2 * 0.1 * (1 + 2 * 0.1 / 4 + 0.2 * 0.5 * 4 * 2) ** 3
    pull = 2 * 1 * 0.9 * lam / (10 * 2)
    assert found["lam"] == pytest.approx(lam, rel=1e-12)
    value = 10 / 1000 * (1 + 1 / lam) * pull ** (1 / (lam + 1)) * 250 ** (lam / (lam + 1))
    assert found["bound"] == pytest.approx(value, rel=1e-12)
    assert found["t0"] == pytest.approx((pull * 250**lam) ** (1 / (lam + 1)), rel=1e-12)
    assert found["unused"] == {}


def test_the_m_of_an_algorithm_s_name_is_that_of_the_bound() -> None:
    nameless = {name: value for name, value in GIVEN.items() if name != "--m"}
    expected = json.loads(invoke("--algorithm", "free", "--json"))
    assert json.loads(invoke("--algorithm", "free-4", "--json", given=nameless)) == expected
    assert json.loads(invoke("--algorithm", "free-4", "--json")) == expected
    both = json.loads(invoke("--algorithm", "vanilla-10,free-8", "--json", given=nameless))
    assert [one["algorithm"] for one in both["bounds"]] == ["vanilla", "free"]
    assert both["bounds"][1]["parameters"]["m"] == 8
    for names, message in {
        "free-8": "m = 4, 8: give it once",
        "free-2,free-4": "m = 2, 4: give it once",
        "free-trades-4": "no theorem covers it",
        "friendly-10": "unknown algorithm 'friendly-10'",
    }.items():
        with pytest.raises(InputError, match=message):
            invoke("--algorithm", names)


def test_unused_parameters_are_accepted_and_reported() -> None:
    found = json.loads(invoke("--algorithm", "vanilla", "--json"))
    assert found["unused"] == {"psi": 4.0, "alpha": 0.2, "m": 4}
    assert found["vacuous"] is True
    assert "vacuous" in invoke("--algorithm", "vanilla")


def test_without_an_algorithm_all_three_are_shown_with_their_hypotheses() -> None:
    text = invoke()
    for word in ("Theorem 2", "Theorem 5", "Theorem 4", "exact_inner_max", "psi_positive"):
        assert word in text
    for once in (
        "parameters",
        "hypotheses",
        "  beta = 2:",
        "? smooth",
        "  m = 4 (free only):",
        "exact_inner_max",
    ):
        assert text.count(once) == 1, once
    rows = {line.split()[0]: line for line in text.splitlines() if "Theorem" in line}
    assert list(rows) == ["vanilla", "fast", "free"]
    assert "vacuous" in rows["vanilla"]
    assert "vacuous" not in rows["free"]
    found = json.loads(invoke("--json"))
    assert f"{found['bounds'][2]['bound']:.4g}" in rows["free"]
    assert text.index("Theorem 2") < text.index("hypotheses")
    assert [one["algorithm"] for one in found["bounds"]] == ["vanilla", "fast", "free"]


def test_tables_hold_the_comparison_and_remark_3() -> None:
    found = json.loads(invoke("--tables", "--json"))
    ratios = [row["log10_free_over_vanilla"] for row in found["comparison"]]
    assert ratios == sorted(ratios, reverse=True)
    assert found["free_steps"][0]["log10_over_m1"] == 0
    assert "Remark 3" in invoke("--tables")


def test_plots_are_written(tmp_path: Path) -> None:
    text = invoke("--plots", str(tmp_path / "here"))
    names = {"bounds.png", "comparison.png", "remark-3.png"}
    assert {path.name for path in (tmp_path / "here").iterdir()} == names
    assert all(name in text for name in names)


def test_a_missing_constant_is_named_with_its_meaning() -> None:
    given = {k: v for k, v in GIVEN.items() if k != "--psi"}
    with pytest.raises(InputError, match=r"missing: --psi \(1/ψ bounds.*--from"):
        invoke("--algorithm", "fast", given=given)
    assert json.loads(invoke("--algorithm", "vanilla", "--json", given=given))["bound"] > 0


def test_derived_bounds_are_marked_and_need_only_their_own_parameters() -> None:
    own = {"--beta": "2", "--eps": "0.01", "--lipschitz-w": "1", "--weight-step": "0.1", "--batch-size": "10"}
    own |= {"--n": "1000", "--updates": "1000"}
    found = json.loads(invoke("--algorithm", "convex", "--json", given=own))
    assert found["source"] == "derived here"
    assert found["bound"] == pytest.approx(0.04 * 0.1 * math.sqrt(2000) + 2 * 0.1, rel=1e-12)
    averaged = json.loads(invoke("--algorithm", "convex", "--average", "--json", given=own))
    assert averaged["bound"] == pytest.approx(0.04 * 0.1 * math.sqrt(1001) + 0.1001, rel=1e-12)
    with pytest.raises(InputError, match=r"missing: --c .*, --proximal \(weight ρ"):
        invoke("--algorithm", "proximal", given=own)
    with pytest.raises(InputError, match="exceeds 1/"):
        invoke("--algorithm", "convex", given=own | {"--weight-step": "1"})


def test_several_bounds_are_compared_with_their_sources(tmp_path: Path) -> None:
    given = GIVEN | {"--weight-step": "0.1", "--proximal": "10"}
    text = invoke(
        "--algorithm", "vanilla,convex, proximal", "--average", "--plots", str(tmp_path), given=given
    )
    rows = {
        line.split()[0]: line
        for line in text.splitlines()
        if line.startswith(("vanilla", "convex", "proximal"))
    }
    assert list(rows) == ["vanilla", "convex", "proximal"]
    assert "Theorem 2, averaged here" in rows["vanilla"]
    assert "derived here" in rows["convex"]
    assert "(vanilla and proximal only)" in text
    assert [path.name for path in tmp_path.iterdir()] == ["bounds.png"]


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'free'"):
        invoke("--algorithm", "fre")


def _train(folder: Path, **options: object) -> None:
    from freeat.runs.run import RunOptions, execute
    from freeat.runs.spec import EvalSpec, TrainSpec

    spec = TrainSpec.of(
        {"data": "digits", "train_size": 60, "updates": 8, "batch_size": 20, "threads": 1, **options}
    )
    execute(spec, EvalSpec(attack="pgd-1"), RunOptions(folder=folder, device="cpu"))


def test_a_run_in_theorem_mode_violates_few_hypotheses(tmp_path: Path) -> None:
    _train(
        tmp_path / "run",
        model="mlp-w8-softplus",
        algorithm="free-4",
        norm="l2",
        eps=0.5,
        box=False,
        augment="none",
        momentum=0.0,
        weight_decay=0.0,
        schedule="vanishing",
        lr=0.2,
        sampling="independent",
    )
    found = json.loads(invoke("--from", str(tmp_path / "run"), "--json", given={}))
    assert found["parameters"] | {"L": 0, "L_w": 0, "beta": 0, "psi": 0} == {
        "beta": 0, "c": pytest.approx(0.2), "L": 0, "L_w": 0, "eps": 0.5, "b": 20, "n": 60, "T": 8, "psi": 0,
        "alpha": 1.0, "m": 4,
    }  # fmt: skip
    violated = [h["key"] for h in found["hypotheses"] if h["status"] == "violated"]
    assert violated == ["bounded_loss"]
    assert found["constants"]["points"] == 60
    assert found["constants"]["gradients"] > 60
    assert found["bound"] > 0


@pytest.mark.parametrize("part", [{"awp": 0.01}, {"clip_grad": 1.0}, {"proximal": 0.0}])
def test_parts_of_a_run_violate_plain_sgd(part: dict[str, float], tmp_path: Path) -> None:
    plain = {"momentum": 0.0, "weight_decay": 0.0, "norm": "l2", "eps": 0.1, "box": False}
    _train(tmp_path / "run", model="linear", algorithm="vanilla-1", **plain, **part)
    found = json.loads(
        invoke("--from", str(tmp_path / "run"), "--points", "2", "--json", given={"--beta": "1"})
    )
    assert "plain_sgd" in {h["key"] for h in found["hypotheses"] if h["status"] == "violated"}


def test_the_default_eta_of_an_linf_run_is_marked(tmp_path: Path) -> None:
    plain = {"momentum": 0.0, "weight_decay": 0.0, "eps": 0.1, "box": False}
    for norm, status in (("linf", "violated"), ("l2", "unknown")):
        _train(tmp_path / norm, model="linear", algorithm="vanilla-1", norm=norm, **plain)
        options = ("--from", str(tmp_path / norm), "--points", "2", "--algorithm", "approximate", "--json")
        found = json.loads(invoke(*options, given={}))
        assert {h["key"]: h["status"] for h in found["hypotheses"]}["approximately_smooth"] == status
        found = json.loads(invoke(*options, given={"--eta": "3"}))
        assert {h["key"]: h["status"] for h in found["hypotheses"]}["approximately_smooth"] == "unknown"


def test_from_an_ordinary_relu_run_beta_must_be_given(tmp_path: Path) -> None:
    _train(tmp_path / "run", model="cnn-w4", algorithm="vanilla-2", norm="linf", eps=0.1)
    with pytest.raises(InputError, match=r"β is not defined.*relu.*--beta"):
        invoke("--from", str(tmp_path / "run"), given={})
    found = json.loads(invoke("--from", str(tmp_path / "run"), "--json", given={"--beta": "3"}))
    violated = {h["key"] for h in found["hypotheses"] if h["status"] == "violated"}
    assert {"smooth", "l2_ball", "no_box", "plain_sgd", "per_sample_loss", "exact_inner_max"} <= violated
    # a step of 0.1, ÷10 at half of 8 updates: t·α_t is largest at t = 4
    assert found["parameters"]["c"] == pytest.approx(0.4)
    assert math.isfinite(found["bound"])


def test_a_friendly_run_has_no_bound(tmp_path: Path) -> None:
    _train(tmp_path / "run", model="linear", algorithm="friendly-2", norm="l2", eps=0.1)
    with pytest.raises(InputError, match="vanilla, fast and free"):
        invoke("--from", str(tmp_path / "run"), given={})


@pytest.mark.parametrize("options", ["--updates inf", "--n nan", "--m 1e999"])
def test_a_fractional_count_is_refused(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = "--beta 2 --c 0.1 --lipschitz 1 --lipschitz-w 1 --psi 4 --eps 0.5 --alpha-delta 0.2 --m 4 --batch-size 10"
    assert run(["bound", *f"{numbers} --n 1000 --updates 1000 {options}".split()]) == 2
    assert "error:" in capsys.readouterr().err


def test_the_document_of_a_run_names_the_algorithm_that_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(tmp_path / "run", algorithm="vanilla-2")
    capsys.readouterr()
    options = [
        "--algorithm",
        "fast",
        "--points",
        "2",
        "--beta",
        "1",
        "--psi",
        "2",
        "--alpha-delta",
        "0.5",
        "--json",
    ]
    assert run(["bound", "--from", str(tmp_path / "run"), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["algorithm"], found["source"]) == ("fast", "Theorem 5")
