"""``freeat stability``: twin runs on S and S′, measured and held against the bounds."""

import time
from pathlib import Path
from typing import Any

import click

from freeat.cli.options import json_option


@click.command()
@click.option(
    "--data", default="digits", show_default=True, help="data set by name, .npz file or image folder"
)
@click.option(
    "--algorithms", default="vanilla-10,fast,free-4", show_default=True, help="the algorithms, with commas"
)
@click.option(
    "--model", default="mlp-w64-softplus", show_default=True, help="network by name; smooth ones have a β"
)
@click.option("--theorem", is_flag=True, help="as the theorems assume: steps c/t, plain SGD, loss 1 − p_y")
@click.option("--norm", default="l2", show_default=True, help="norm of the perturbations: l2 or linf")
@click.option("--eps", default="0.5", show_default=True, help="radius in input units, e.g. 8/255")
@click.option("--train-size", default="500", show_default=True, help="examples in S; several with --sweep n")
@click.option("--sweep", type=click.Choice(["n"]), help="repeat for every size in --train-size, T fixed")
@click.option("--updates", default=500, show_default=True, help="weight updates T")
@click.option("--batch-size", default=32, show_default=True, help="images per batch")
@click.option("--lr", default=0.1, show_default=True, help="learning rate; with --theorem the c of c/t")
@click.option(
    "--augment",
    default="auto",
    show_default=True,
    help="auto, none, crop, flip or crop-flip; none with --theorem",
)
@click.option("--replaced", default=16, show_default=True, help="neighbours S′ (replaced examples) per seed")
@click.option("--seeds", default=4, show_default=True, help="seeds of initial weights, batches and starts")
@click.option("--probes", default=128, show_default=True, help="unseen images at which losses are compared")
@click.option("--attack-steps", default=20, show_default=True, help="steps of the PGD that finds max_δ h")
@click.option("--eval-size", default=300, show_default=True, help="images for robust train and test accuracy")
@click.option(
    "--probe-times", default=5, show_default=True, help="how often losses and accuracies are looked at"
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "stacked", "separate"]),
    default="auto",
    show_default=True,
    help="how twins are trained; auto measures once",
)
@click.option("--threads", type=int, help="CPU threads; another number gives other bits")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps")
@click.option("--data-dir", type=click.Path(path_type=Path), help="folder of the data sets (or $FREEAT_DATA)")
@click.option("--out", type=click.Path(path_type=Path), default="stability", show_default=True, help="folder")
@json_option
def stability(as_json: bool, **given: Any) -> int:
    """Measure algorithmic stability: how far runs part when one training example is replaced.

    Trains on S and on neighbours S′ with the same initial weights, batches, augmentation and starts. Prints, for each
    algorithm, the distance of the weights, two estimates of stability, the measured gap, the bound where a theorem
    covers the setting, and the accuracies; writes pictures beside them. The same command goes on where it stopped.

    \b
    freeat stability --data digits --algorithms vanilla-10,fast,free-4 --seeds 4
    freeat stability --sweep n --train-size 125,250,500,1000 --updates 500
    """
    from freeat.cli.stopping import stop_wish
    from freeat.compute.machine import arithmetic, resolve_device, resolve_threads
    from freeat.files.documents import to_json

    device, threads = resolve_device(given["device"]), resolve_threads(given["threads"])
    study, data = _study(given, device)
    total = study.seeds * len(study.sizes) * len(study.algorithms)
    shown = _Progress(total)
    with arithmetic(threads=threads, deterministic=True), stop_wish() as wish:
        for cell in study.run(data, watch=shown.step, should_stop=wish):
            shown.finished(cell)
        if wish():
            click.echo(f"stopped; the same command goes on after {shown.done} of {total} cells", err=True)
            return wish.exit_code
    document = _document(study, data)
    click.echo(to_json(document) if as_json else "\n".join(_lines(document)))
    return 0


def _study(given: dict[str, Any], device: Any) -> tuple[Any, Any]:
    from freeat.data import load
    from freeat.errors import InputError
    from freeat.stability.setting import Setting
    from freeat.stability.study import Study, parse_algorithms, parse_sizes
    from freeat.units import parse_radius

    sizes = parse_sizes([given["train_size"]])
    if len(sizes) > 1 and given["sweep"] is None:
        raise InputError(f"--train-size {given['train_size']}: give one size, or several with --sweep n")
    same = (
        "data",
        "model",
        "norm",
        "updates",
        "batch_size",
        "lr",
        "augment",
        "replaced",
        "probes",
        "attack_steps",
    )
    setting = Setting(
        **{name: given[name] for name in (*same, "eval_size", "probe_times")},
        mode="theorem" if given["theorem"] else "ordinary",
        eps=parse_radius(given["eps"]),
        n=sizes[-1],
    )
    data = load(given["data"], data_dir=given["data_dir"])
    setting.ball.check(data.shape)
    study = Study(
        setting=setting,
        algorithms=parse_algorithms(given["algorithms"]),
        seeds=given["seeds"],
        sizes=sizes,
        folder=given["out"],
        engine=None if given["engine"] == "auto" else given["engine"],
        device=device,
    )
    return study, data


class _Progress:
    """Lines on stderr: every finished cell, and where a long one is."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self._spoke = time.monotonic()

    def step(self, title: str, update: int, total: int) -> None:
        if time.monotonic() - self._spoke > 30:
            self._spoke = time.monotonic()
            click.echo(f"{title}: update {update}/{total}", err=True)

    def finished(self, cell: dict[str, Any]) -> None:
        self.done += 1
        self._spoke = time.monotonic()
        title = f"[{self.done}/{self.total}] {cell['algorithm']} n={cell['n']} seed {cell['seed']} ({cell['engine']})"
        if cell.get("diverged") is not None:
            click.echo(f"{title}: diverged by update {cell['diverged']}", err=True)
            return
        last = cell["probes"][-1]
        click.echo(
            f"{title}: distance {sum(cell['distances'][-1]['d_w']) / len(cell['t0']):.4g}, robust train "
            f"{last['robust_train'][0]:.1%}, test {last['robust_test'][0]:.1%}",
            err=True,
        )


def _document(study: Any, data: Any) -> dict[str, Any]:
    from freeat.compute.machine import provenance
    from freeat.files.documents import write_json
    from freeat.reports.stability import draw_study
    from freeat.stability.exponents import converged, exponents
    from freeat.stability.study import FORMAT
    from freeat.stability.summary import bound_curve, constants_of, summarize

    cells = study.cells()
    rows = summarize(study.setting, cells, len(data.classes))
    fits = exponents(cells, rows)
    whole = converged(cells)
    curves = {}
    for name in study.algorithms:
        shown = [c for c in whole if c["algorithm"] == name and c["n"] == study.setting.n]
        if (curve := bound_curve(study.setting, name, constants_of(shown))) is not None:
            curves[name] = curve
    title = f"{study.setting.data}, {study.setting.model}, {study.setting.norm} ε = {study.setting.eps:.4g}"
    pictures = draw_study(study.folder, whole, curves, fits, title) if whole else []
    document = {
        "folder": str(study.folder),
        "mode": study.setting.mode,
        "rows": rows,
        "exponents": fits,
        "pictures": [str(path) for path in pictures],
        "notes": list(data.notes),
    }
    write_json(study.folder / "summary.json", {**document, **provenance(study.device)}, format=FORMAT)
    return document


def _lines(document: dict[str, Any]) -> list[str]:
    from freeat.reports.stability import exponent_lines, stability_lines

    return [
        *stability_lines(document["rows"]),
        *exponent_lines(document["exponents"]),
        *document["notes"],
        *(f"picture: {path}" for path in document["pictures"]),
    ]
