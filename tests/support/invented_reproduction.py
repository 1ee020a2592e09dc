"""A reproduction's document with every kind of table and figure in it, of invented numbers."""

from typing import Any

from freeat.experiments.paper.claims import decide_claims, sufficiency_of
from freeat.experiments.paper.documents import Figure, PaperTable, ReproductionDocument, SeedMean, TableRow
from freeat.experiments.paper.estimate import seed_mean
from freeat.experiments.paper.published import published_tables
from freeat.files.documents import decoded
from made_records import make_provenance

HELD = 0.3


def cells(columns: tuple[str, ...], seeds: int, shift: float = 0.0) -> dict[str, SeedMean]:
    values = {"train": 0.8 + shift, "test": HELD, "gap": 0.8 + shift - HELD}
    return {
        column: seed_mean([values[column.split("_")[1]] + 0.01 * k for k in range(seeds)], [0.01] * seeds)
        for column in columns
    }


def table(name: str, *, missing: tuple[str, ...] = (), seeds: int = 3) -> PaperTable:
    """A table of the paper whose measured numbers are all alike; ``missing`` labels have none."""
    published = published_tables()[name]
    columns = published.columns
    rows = [
        TableRow(
            data=row.data,
            norm=row.norm,
            label=row.label,
            at=published.at,
            measured=None if row.label in missing else cells(columns, seeds),
            plain=None if row.label in missing else cells(columns, seeds, 0.05),
            published=row.cells,
            above_chance=None if row.label in missing else True,
            collapsed=0,
            seeds=0 if row.label in missing else seeds,
            runs=("a", "b", "c")[:seeds],
        )
        for row in published.rows
    ]
    return PaperTable(name=name, title=published.title, columns=columns, rows=tuple(rows), notes=())


def points(*means: float) -> list[dict[str, Any]]:
    errors = {"std": 0.01, "low": 0.1, "high": 0.6, "seeds": 3, "image_error": 0.01}
    return [{"mean": mean, **errors} for mean in means]


def series(label: str) -> dict[str, Any]:
    return {"label": label, "above_chance": True}


def curve(label: str) -> dict[str, Any]:
    ends = {"updates": [100, 200, 400], "epochs": [50.0, 100.0, 200.0], "images": [128, 128, 1024]}
    values = {"train": [0.6, 0.4, 0.2], "test": [0.7, 0.7, 0.75], "points": points(0.1, 0.3, 0.55)}
    return {
        **series(label),
        **ends,
        **values,
        "collapse": [{"left": 1.0, "seen": False, "learnt": True}] * 3,
    }


def against_radius(label: str) -> dict[str, Any]:
    shown = {"eps": [64 / 255, 128 / 255], "n": 200, "attack": "square-300"}
    return {**series(label), **shown, "points": points(0.5, 0.4)}


def against_size(label: str, *, fitted: bool = True) -> dict[str, Any]:
    exponent = {"value": 0.4, "low": 0.3, "high": 0.5} if fitted else None
    return {**series(label), "n": [256, 512], "points": points(0.5, 0.4), "exponent": exponent}


def norms(label: str) -> dict[str, Any]:
    seen = {"updates": [100, 200], "bins": [-0.2, -0.1, 0.0, 0.1], "counts": [[0, 5, 7], [1, 2, 9]]}
    return {**series(label), **seen, "smallest": [0.7, 0.0], "smallest_of_seeds": [0.0]}


def figure(name: str, kind: str, *panels: tuple[str, str, str], series: list[dict[str, Any]]) -> Figure:
    drawn = [{"data": d, "norm": n, "panel": p, "series": series} for d, n, p in panels]
    whole = {"name": name, "title": f"a figure of {kind}", "kind": kind, "panels": drawn}
    return decoded(whole, Figure, "the test")  # type: ignore[arg-type]


def figures() -> list[Figure]:
    both = (("cifar10", "l2", ""), ("cifar10", "linf", ""))
    sources = [
        ("cifar10", norm, f"from {source}") for norm in ("l2", "linf") for source in ("vanilla-10", "free-4")
    ]
    return [
        figure("figure-1", "curves", *both, series=[curve("vanilla-10"), curve("free-4")]),
        figure("figure-2", "radius", *both, series=[against_radius("vanilla-10"), against_radius("free-4")]),
        figure(
            "figure-3", "radius", *sources, series=[against_radius("vanilla-10"), against_radius("free-4")]
        ),
        figure(
            "figure-4", "size", both[0], series=[against_size("free-4"), against_size("fast", fitted=False)]
        ),
        figure("figure-8", "radius", ("cifar100", "l2", "resnet18"), series=[against_radius("fast")]),
        figure("figure-9", "radius", series=[]),
        figure(
            "figure-12", "norms", both[0], ("cifar100", "l2", ""), series=[norms("free-4"), norms("free-6")]
        ),
    ]


def document(**changes: Any) -> ReproductionDocument:
    """All six tables, all kinds of figures, and the claims decided on them."""
    tables = tuple(table(name, missing=("free-10",)) for name in published_tables())
    drawn = tuple(figures())
    whole: dict[str, Any] = {
        "scale": "hour",
        "experiments": ("all",),
        "commits": (),
        "machines": (),
        "training_seconds": 0.0,
        "notes": (),
        "left_out": (),
        "failures": (),
        "sufficiency": sufficiency_of(tables),
        "tables": tables,
        "figures": drawn,
        "claims": decide_claims(tables, drawn),
        "runs": {},
        "measurements": {},
        "provenance": make_provenance(command="freeat reproduce all"),
    }
    return ReproductionDocument(**{**whole, **changes})
