"""``freeat predict``: the classes of images."""

from pathlib import Path

import click

from freeat.cli.options import device_option, json_option, trust_code_option, trusts_code


@click.command()
@click.argument("model")
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--top", type=click.IntRange(min=1), default=3, show_default=True, help="classes shown for each image"
)
@click.option(
    "--skip-unreadable", is_flag=True, help="leave out images that cannot be read, and say how many"
)
@device_option
@trust_code_option
@json_option
def predict(
    model: str,
    images: tuple[Path, ...],
    top: int,
    skip_unreadable: bool,
    device: str,
    trust_code: bool,
    as_json: bool,
) -> None:
    """Classify IMAGES, files or folders of them, by MODEL: a run folder, an exported folder, its model.onnx, or
    hf://NAME@COMMIT on the Hugging Face Hub.

    Every image is brought to the form of the model's training images: upright, grey or RGB, scaled until it covers
    their size, cropped at its centre, pixels in [0, 1]. The shares are the softmax of the logits.

    \b
    freeat predict exports/free photo.jpg more-photos/
    freeat predict exports/free/model.onnx photo.jpg --json
    """
    from freeat.files.documents import plain, to_json
    from freeat.interop.prediction import predict as classify
    from freeat.reports.tables import print_table

    found, reasons = classify(
        model,
        images,
        top=top,
        skip_unreadable=skip_unreadable,
        device=device,
        trust_code=trusts_code(trust_code, names_code=False),
    )
    if reasons:
        total = len(found) + len(reasons)
        click.echo(f"{len(reasons)} of {total} images cannot be read and were left out", err=True)
    if as_json:
        click.echo(to_json({"model": model, "predictions": plain(found), "left_out": reasons}))
        return
    titles = ["image", "class", "share", "then"][: 3 if top == 1 else 4]
    rows = [
        [one.image, one.label, f"{one.probability:.1%}", ", ".join(f"{k} {p:.1%}" for k, p in one.top[1:])]
        for one in found
    ]
    print_table(titles, [row[: len(titles)] for row in rows], numbers=(2,), wrap=False)
