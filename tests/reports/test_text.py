"""Runs and comparisons as text."""

from dataclasses import replace
from typing import Any

import pytest

from freeat.evaluation.evaluate import Gap
from freeat.evaluation.matched import Interval, MatchedGap
from freeat.experiments.comparison import AlgorithmSummary, Comparison, FailedRun, MeanStd
from freeat.experiments.curves import ArmDifference
from freeat.reports.tables import aligned, share_text
from freeat.reports.text import (
    accuracy_lines,
    comparison_markdown,
    difference_claims,
    print_comparison,
    remarks,
    result_lines,
    share_remark,
)
from freeat.runs.spec import TrainSpec
from made_records import make_record, make_summary


def test_aligned_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("name", "n"), ("a", "1000")]
    assert aligned(rows) == ["name  n", "a     1000"]
    assert aligned(rows, right=True) == ["name     n", "   a  1000"]


def row(name: str, **changes: Any) -> AlgorithmSummary:
    columns = ("robust_train", "robust_test", "robust_gap", "clean_train", "clean_test", "clean_gap")
    made = AlgorithmSummary(
        algorithm=name,
        seeds=(0, 1),
        **dict.fromkeys(columns, MeanStd(mean=0.5, std=0.012)),
        seconds=12.34,
        gradient_evaluations=1234567,
        updates=10,
        collapsed=0,
        above_chance=True,
        folders=(),
    )
    return replace(made, **changes)


def summary(*rows: AlgorithmSummary, **changes: Any) -> Comparison:
    return Comparison(algorithms=rows, settings={}, **changes)


def test_accuracy_lines_show_both_splits_and_the_gap() -> None:
    split, gap = make_summary(0.75, 0.9, n=40, population=600), Gap(value=0.125, low=-0.01, high=0.26)
    lines = accuracy_lines("free-4", 40, make_record(split, split, eps=8 / 255, gap=gap, clean_gap=gap))
    assert lines[0] == "free-4 after 40 updates, evaluated by pgd-10 at ε = 8/255:"
    assert " ".join(lines[1].split()) == "robust train 75.0 % test 75.0 % gap 12.5 [-1.0, 26.0]"
    assert "clean" in lines[2]
    assert "90.0" in lines[2]
    assert lines[3].strip() == "on 40 of 600 training and 40 of 600 test images"


def test_every_kind_of_weights_is_named_beside_its_own_accuracy() -> None:
    last, ema, slow = (
        make_record(
            make_summary(p, 0.9, n=40, population=600), make_summary(p / 2, 0.9, n=40, population=600)
        )
        for p in (0.5, 0.75, 0.25)
    )
    plain = replace(last, update=40)
    spec = TrainSpec(algorithm="free-4", ema=0.999, awp=0.01)
    lines = result_lines(spec, replace(plain, ema=ema))
    titles = [
        (line.split(" after")[0], lines[k + 1].split()[2]) for k, line in enumerate(lines) if "after" in line
    ]
    assert titles == [("free-4 + awp", "50.0"), ("free-4 + awp + ema", "75.0")]
    lines = result_lines(TrainSpec(algorithm="fast", proximal=5e-4), replace(plain, slow=slow))
    titles = [
        (line.split(" after")[0], lines[k + 1].split()[2]) for k, line in enumerate(lines) if "after" in line
    ]
    assert titles == [("fast + proximal (last weights)", "50.0"), ("fast + proximal (slow weights)", "25.0")]


def test_a_difference_with_a_model_at_chance_decides_nothing_and_the_budget_is_named() -> None:
    effect = Interval(value=-0.2, low=-0.3, high=-0.1)
    found = ArmDifference(
        arm="free-4",
        reference="fast",
        tests="free",
        seeds=(0, 1),
        robust_gap=effect,
        robust_test=effect,
        matched_gap=None,
    )
    first = "free-4 minus fast (free): the gap falls at equal updates, robust test accuracy falls."
    assert difference_claims([found]) == [first]
    (of_gradients,) = difference_claims([found], "gradients")
    assert "the gap falls at equal gradient evaluations," in of_gradients
    at_chance = replace(found, at_chance=("free-4",))
    constant = "free-4 minus fast (free): nothing is decided, free-4 did not get above chance."
    assert difference_claims([at_chance, found]) == [constant, first]


def arms(*p_values: float | None, at_chance: tuple[str, ...] = ()) -> list[ArmDifference]:
    """Differences with these p-values of both gaps, whose interval excludes zero unless p is 1; the first at chance."""
    made = []
    for k, p in enumerate(p_values):
        effect = Interval(value=-0.2, low=-0.4, high=0.1 if p == 1 else -0.01, p=p)
        made.append(
            ArmDifference(
                arm=f"arm-{k + 1}",
                reference=f"arm-{k}",
                tests="part",
                seeds=(0, 1),
                robust_gap=effect,
                robust_test=Interval(value=0.2, low=0.01, high=0.4, p=1e-4),
                matched_gap=MatchedGap(level=0.7, first=0.1, second=0.3, difference=effect),
                at_chance=() if k else at_chance,
            )
        )
    return made


def test_what_is_said_of_several_differences_is_corrected_after_holm() -> None:
    """p = 0.03 is below 5 %, but not below the 2.5 % of the second of three; each column is a family of its own."""
    small, lost, none = difference_claims(arms(0.001, 0.03, 1))
    assert small == (
        "arm-1 minus arm-0 (part): the gap falls at equal updates, the gap falls at equal robust training accuracy, "
        "robust test accuracy grows."
    )
    for where in ("at equal updates", "at equal robust training accuracy"):
        assert f"the effect on the gap {where} is not decided after correction for 3 differences" in lost
        assert f"no effect on the gap is seen {where}" in none
    assert all(line.endswith("robust test accuracy grows.") for line in (small, lost, none))
    assert "the gap falls at equal updates" in difference_claims(arms(0.03))[0]
    assert "the gap falls at equal updates" in difference_claims(arms(0.001, 0.03))[1]


def test_differences_at_chance_are_not_corrected_for() -> None:
    constant, *others = difference_claims(arms(0.04, 0.001, 0.03, at_chance=("arm-1",)))
    assert constant == "arm-1 minus arm-0 (part): nothing is decided, arm-1 did not get above chance."
    assert all("the gap falls at equal updates" in line for line in others)


def test_a_table_says_whether_it_is_corrected_for_the_number_of_differences() -> None:
    """Stored comparisons may be without p-values; one difference needs no correction."""

    def text(*p_values: float | None) -> str:
        return comparison_markdown(summary(row("fast"), differences=tuple(arms(*p_values))))

    assert "Neither the intervals nor what is said of them is corrected" in text(None, None)
    assert text(None, None).count("the gap falls at equal updates") == 2
    assert "Intervals are not corrected for the number of differences." in text(0.03, 0.04)
    assert text(0.03, 0.04).count("is not decided after correction for 2 differences") == 4
    assert "correct" not in text(0.03)


def test_comparison_in_markdown() -> None:
    one_seed = row("free-4", robust_test=MeanStd(mean=0.25, std=None), seeds=(0,))
    text = comparison_markdown(summary(row("fast"), one_seed))
    lines = text.splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:3]] == ["algorithm", "robust train"]
    assert "| fast | 50.0 ± 1.2 |" in lines[2]
    assert "| 25.0 |" in lines[3]
    assert "1,234,567" in lines[2]
    assert len({line.count("|") for line in lines[:4]}) == 1


def test_comparison_on_a_terminal_holds_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(summary(row("fast"), notes=("A [substitute] was used.",)))
    printed = capsys.readouterr().out
    for part in ("fast", "50.0 ± 1.2", "1,234,567", "A [substitute] was used."):
        assert part in printed


def test_a_narrow_terminal_cuts_no_number_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_comparison(summary(row("vanilla-10", arm="vanilla-10 weak + replay")))
    printed = capsys.readouterr().out
    assert "…" not in printed
    for part in ("vanilla-10 weak + replay", "50.0 ± 1.2", "1,234,567", "12.3"):
        assert part in printed


def test_the_cost_of_curves_is_said_where_it_is_more_than_usual() -> None:
    cheap, dear = row("vanilla-10", evaluation_share=0.04), row("free-4", evaluation_share=0.42)
    assert remarks(summary(cheap)) == []
    assert remarks(summary(cheap, dear)) == [
        "Evaluations during training cost 42.0 % of the training of free-4: fewer with --eval-every."
    ]


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.767, "176.7 % of it"), (2.0, "200.0 % of it"), (5.128, "5.1 times it"), (27.769, "28 times it")],
)
def test_a_share_of_more_than_twice_the_whole_is_said_as_a_multiple(share: float, text: str) -> None:
    assert share_text(share, "it") == text
    (remark,) = share_remark({"free-4": share})
    assert text.replace("it", "the training of free-4") in remark


def test_the_evaluation_costs_of_many_trainings_are_a_range() -> None:
    (remark,) = share_remark({"fast": 3.0, "free-4": 16.0, "vanilla-10": 0.5, "erm": 2.5, "trades-10": 0.01})
    assert "between 50.0 % of the training of vanilla-10 and 16 times the training of free-4" in remark
    assert "fast" not in remark


def test_remarks_name_chance_level_collapse_and_failures() -> None:
    printed = remarks(
        summary(
            row("free-4", above_chance=False),
            row("fast", collapsed=1),
            row("erm"),
            failures=(FailedRun(run="erm/seed-1", reason="no memory"),),
            notes=("a note",),
        )
    )
    assert printed == [
        "free-4 did not get above chance: its gap says nothing.",
        "fast collapsed (catastrophic overfitting) in 1 of 2 runs.",
        "erm/seed-1 failed: no memory",
        "a note",
    ]
