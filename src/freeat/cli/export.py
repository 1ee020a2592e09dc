"""``freeat export``: a run's model for others to use."""

import json
from pathlib import Path

import click

from freeat.cli.options import json_option, trusts_code


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="folder to write  [default: exports/RUN]")
@click.option(
    "--weights", default="model", show_default=True, help="which weights: model (the last), ema or best"
)
@click.option("--onnx", is_flag=True, help="also write model.onnx, checked with onnxruntime (freeat[onnx])")
@click.option("--model", default=None, help="repeat the import path of the run's model to allow importing it")
@click.option("--trust-code", is_flag=True, help="allow importing code that the run folder names")
@json_option
def export(
    run: Path, out: Path | None, weights: str, onnx: bool, model: str | None, trust_code: bool, as_json: bool
) -> None:
    """Write the model of the finished run in folder RUN as safetensors, JSON and a model card.

    The folder holds everything it takes to build the model again (`freeat.load(FOLDER)`), and a README.md with its
    measured clean and robust accuracy, gap, threat model and limits.
    """
    from freeat.interop.export import export as write
    from freeat.runs.folder import RunFolder

    trusted = trusts_code(trust_code, model == RunFolder(run).spec.model)
    folder = write(run, out, weights=weights, onnx=onnx, trust_code=trusted)
    files = sorted(path.name for path in folder.iterdir())
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "files": files}))
    else:
        click.echo(f"{folder}: {', '.join(files)}")
