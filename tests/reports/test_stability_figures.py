"""Figures and table of a stability study."""

import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from freeat.errors import InputError
from freeat.files.documents import decoded, plain
from freeat.reports.stability import BOUND_HEADROOM, draw_study, results_by_algorithm, study_table
from freeat.stability import UniformStability
from freeat.stability.results import Distances, GradientRecord, ProbeRecord, TwinResult
from freeat.stability.summary import SummaryRow


def result(name: str, scale: int) -> TwinResult:
    probe = dict.fromkeys(("robust_train", "robust_test", "risk_train", "risk_test"), (0.5, 0.5))
    bins = {"-10": 3 * scale, "-7": 100 * scale}
    return TwinResult(
        algorithm=name,
        n=20,
        seed=0,
        engine="stacked",
        seconds=1.0,
        replaced=(0,),
        t0=(1,),
        differences=((0.2,),),
        distances=tuple(Distances(update=k, d_w=(0.1 * k,), d_delta=(0.01,)) for k in (1, 2)),
        probes=(ProbeRecord(update=2, largest_difference=0.2, mean_difference=0.1, **probe),),
        gradient_norms=tuple(GradientRecord(update=k, bins=bins, smallest_so_far=0.1) for k in (1, 2)),
    )


def test_gradient_heat_maps_share_one_colour_scale(tmp_path: Path, drawn: list[Figure]) -> None:
    paths = draw_study(
        tmp_path, results_by_algorithm([result("fast", 1), result("free-4", 5)]), {}, [], "digits"
    )
    assert [path.name for path in paths] == ["distance.png", "loss-difference.png", "gradient-norms.png"]
    *panels, bar = drawn[2].axes
    assert bar.get_ylabel() == "images since the record before"
    meshes = [panel.collections[0] for panel in panels]
    assert [mesh.get_clim() for mesh in meshes] == [(1, 500), (1, 500)]
    assert meshes[0].get_array().tolist()[0] == [3, 3]


def test_infinite_bounds_do_not_stretch_the_distance_axis(tmp_path: Path, drawn: list[Figure]) -> None:
    curves = {"fast": ([0, 1, 2], [0.0, 0.15, math.inf]), "free-4": ([0, 1, 2], [0.0, 1e300, math.inf])}
    draw_study(tmp_path, results_by_algorithm([result("fast", 1), result("free-4", 1)]), curves, [], "digits")
    panel = drawn[0].axes[0]
    low, high = panel.get_ylim()
    assert low < 0.1
    assert 0.2 < high <= BOUND_HEADROOM * 0.2
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert labels == ["fast", "bound, fast", "free-4", "bound, free-4 (above)"]


def test_table_gives_the_limits_of_the_uniform_stability_that_the_seeds_allow() -> None:
    few = UniformStability(value=-0.02, guaranteed_lower_bound=0.0)
    many = UniformStability(
        value=0.31, guaranteed_lower_bound=0.12, approximate_lower_bound=0.25, upper_limit=0.4
    )
    rows = [
        SummaryRow(algorithm="fast", n=20, seeds=s, uniform_stability=u) for s, u in ((4, few), (40, many))
    ]
    table = study_table([*rows, SummaryRow(algorithm="fast", n=20)])
    column = table.columns.index("uniform stability")
    texts = [str(row[column]) for row in table.rows]
    assert texts == ["-0.02 (≥ 0)", "0.31 (≥ 0.12, ≳ 0.25, ≤ 0.4)", "–"]
    explained = [note for note in table.notes if note.startswith("uniform stability")]
    assert len(explained) == 3
    assert len([note for note in study_table(rows[:1]).notes if note.startswith("uniform")]) == 1


@pytest.mark.parametrize("field", ["replaced", "t0", "distances", "probes", "differences"])
def test_a_stored_result_without_what_every_study_shows_is_damaged(field: str) -> None:
    whole = plain(result("fast", 1))
    assert decoded(whole, TwinResult, "result.json") == result("fast", 1)
    with pytest.raises(InputError, match=r"result\.json is damaged: twin runs that did not diverge"):
        decoded(whole | {field: []}, TwinResult, "result.json")
