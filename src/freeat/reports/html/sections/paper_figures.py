"""The paper's figures with the numbers of a reproduction: curves, radii, sizes and gradient norms."""

from collections.abc import Callable, Sequence

from freeat.reports.html.blocks import Axis, Block, Curve, Density, Heat, Lines, Panel, Section, Series, Table
from freeat.reports.html.gather import Json
from freeat.reports.html.sections.curves import PANELS
from freeat.reports.html.sections.reproduction import Documents, title_of
from freeat.reports.html.sections.sizes import N_AXIS, positive
from freeat.reports.html.tasks import NORMS
from freeat.reports.html.texts import with_interval
from freeat.reports.paper_figures import judged_alike
from freeat.reports.plots import AXES


def figures_section(documents: Documents) -> Section | None:
    """The paper's figures, as far as they were measured."""
    blocks: list[Block] = []
    for figure in (figure for _, document in documents for figure in document["figures"]):
        if figure["kind"] in _CHARTS and any(panel["series"] for panel in figure["panels"]):
            blocks.append(_CHARTS[figure["kind"]](figure))
            if figure["kind"] == "size":
                blocks.append(_exponents(figure))
    if not blocks:
        return None
    lead = "The paper's figures with the numbers measured here, means over the seeds."
    return Section(key="figures", title="Figures of the paper", lead=lead, blocks=blocks)


def _lines(
    figure: Json, axes: Sequence[Axis], panels: Sequence[Panel], curves: dict[str, list[Curve]]
) -> Lines:
    series = [Series(name=name, curves=own) for name, own in curves.items()]
    rows = [
        [name, panels[curve.panel].title, f"{curve.x[axes[0].key][k]:.4g}", "–" if y is None else f"{y:.4g}"]
        for name, own in curves.items()
        for curve in own
        for k, y in enumerate(curve.y)
    ]
    return Lines(
        title=_title(figure),
        description=f"{figure['title']}: {', '.join(curves)}",
        axes=axes,
        panels=panels,
        series=series,
        numbers=Table(
            caption=f"{title_of(figure['name'])} as numbers",
            columns=("series", "panel", axes[0].label, "value"),
            rows=rows,
            words=2,
        ),
    )


def _title(figure: Json) -> str:
    return f"{title_of(figure['name'])}: {figure['title']}"


def _place(panel: Json) -> str:
    words = (panel["data"], NORMS.get(panel["norm"], panel["norm"]), panel.get("panel"))
    return ", ".join(str(word) for word in words if word)


def _curves(figure: Json) -> Lines:
    panels: list[Panel] = []
    curves: dict[str, list[Curve]] = {}
    for place, panel in enumerate(figure["panels"]):
        panels += [
            Panel(title=f"{_place(panel)}: {one.title}", unit=one.unit, level=one.level, meaning=one.meaning)
            for one in PANELS
        ]
        for one in panel["series"]:
            whole = judged_alike(one)
            own = curves.setdefault(one["label"], [])
            own += _learning(one, slice(whole), 3 * place)
            if whole < len(one["epochs"]):
                own += _learning(one, slice(whole, None), 3 * place, apart=True)
    axes = [Axis(key=key, label=AXES[key][1]) for key in ("epochs", "updates")]
    return _lines(figure, axes, panels, curves)


def _learning(one: Json, part: slice, first: int, *, apart: bool = False) -> list[Curve]:
    """Training and test error and the gap along a part of the training, in the panels from ``first`` on."""
    x = {key: one[key][part] for key in ("epochs", "updates")}
    train, test, gap, low, high = (
        [100 * v for v in one[key][part]] for key in ("train", "test", "gap", "low", "high")
    )
    errors = [Curve(panel=first + k, x=x, y=y, apart=apart) for k, y in enumerate((train, test))]
    if apart:
        return [*errors, Curve(panel=first + 2, x=x, y=gap, apart=True)]
    return [*errors, Curve(panel=first + 2, x=x, y=gap, low=low, high=high)]


def _radius(figure: Json) -> Lines:
    curves: dict[str, list[Curve]] = {}
    for place, panel in enumerate(figure["panels"]):
        for one in panel["series"]:
            x = {"levels": [255 * eps for eps in one["eps"]], "eps": one["eps"]}
            y, low, high = ([100 * v for v in one[key]] for key in ("accuracy", "low", "high"))
            curves.setdefault(one["label"], []).append(Curve(panel=place, x=x, y=y, low=low, high=high))
    axes = [Axis(key="levels", label="radius ε in 255ths"), Axis(key="eps", label="radius ε")]
    panels = [Panel(title=_place(panel), unit="% right") for panel in figure["panels"]]
    return _lines(figure, axes, panels, curves)


def _size(figure: Json) -> Lines:
    curves: dict[str, list[Curve]] = {}
    for place, panel in enumerate(figure["panels"]):
        for one in panel["series"]:
            y, low, high = (positive([100 * v for v in one[key]]) for key in ("gap", "low", "high"))
            curve = Curve(panel=place, x={"n": one["n"]}, y=y, low=low, high=high)
            curves.setdefault(one["label"], []).append(curve)
    panels = [Panel(title=_place(panel), unit="points", log=True) for panel in figure["panels"]]
    return _lines(figure, [N_AXIS], panels, curves)


def _exponents(figure: Json) -> Table:
    """How fast each gap falls, panel by panel."""
    labels = dict.fromkeys(one["label"] for panel in figure["panels"] for one in panel["series"])
    fits = {
        (_place(panel), one["label"]): one["exponent"]
        for panel in figure["panels"]
        for one in panel["series"]
        if one["exponent"]
    }
    places = [_place(panel) for panel in figure["panels"]]
    missing = len(fits) < len(labels) * len(places)
    return Table(
        caption=f"{title_of(figure['name'])}: fitted exponents a, the gap going with n⁻ᵃ, with 95 % intervals",
        columns=("algorithm", *places),
        rows=[[label, *(with_interval(fits.get((place, label))) for place in places)] for label in labels],
        notes=["–: a single n, or a gap of zero or less, to which no power can be fitted."]
        if missing
        else [],
    )


def _norms(figure: Json) -> Density:
    panels, rows = [], []
    for panel in figure["panels"]:
        for one in panel["series"]:
            name = f"{_place(panel)}: {one['label']}"
            panels.append(
                Heat(
                    title=name,
                    updates=[0, *one["updates"]],
                    counts=[
                        (column, round(10 * edge), images)
                        for column, counts in enumerate(one["counts"])
                        for edge, images in zip(one["bins"], counts, strict=False)  # one edge more than bins
                        if images
                    ],
                    smallest=one["smallest"],
                )
            )
            pairs = zip(one["updates"], one["smallest"], strict=True)
            rows += [[name, str(update), f"{smallest:.3g}"] for update, smallest in pairs]
    columns = ("algorithm", "update", "smallest so far")
    return Density(
        title=_title(figure),
        description=f"{figure['title']}, with the running minimum",
        x_label="weight updates",
        y_label="‖∂h/∂δ‖",
        panels=panels,
        numbers=Table(caption=f"{title_of(figure['name'])} as numbers", columns=columns, rows=rows),
    )


_CHARTS: dict[str, Callable[[Json], Lines | Density]] = {
    "curves": _curves,
    "radius": _radius,
    "size": _size,
    "norms": _norms,
}
