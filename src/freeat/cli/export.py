"""``freeat export``: a run's model as a folder that other programs can use."""

from pathlib import Path

import click

from freeat.cli.options import json_option, path_option, print_result, trust_code_option, trusts_code


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@path_option("--out", help="folder to write  [default: exports/RUN]")
@click.option(
    "--weights", default="model", show_default=True, help="which weights: model (the last), ema, slow or best"
)
@click.option("--onnx", is_flag=True, help="also write model.onnx, checked with onnxruntime (freeat[onnx])")
@click.option(
    "--robustbench",
    is_flag=True,
    help="also write a claim for RobustBench: robustbench.json (its model_info) and robustbench.md (its form)",
)
@click.option("--model", help="repeat the import path of the run's model to allow importing it")
@trust_code_option
@json_option
def export(
    run: Path,
    out: Path | None,
    weights: str,
    onnx: bool,
    robustbench: bool,
    model: str | None,
    trust_code: bool,
    as_json: bool,
) -> None:
    """Write the model of the finished run in folder RUN as safetensors, JSON and a model card.

    The folder holds all that `freeat.load(FOLDER)` needs to build the model again, and a model card (README.md) with
    its clean and robust accuracy, gap, threat model and limitations.
    """
    from freeat.interop.export import export as write
    from freeat.runs.folder import RunFolder

    trusted = trusts_code(trust_code, model == RunFolder(run).spec.model)
    folder = write(run, out, weights=weights, onnx=onnx, robustbench=robustbench, trust_code=trusted)
    files = sorted(path.name for path in folder.iterdir())
    document = {"folder": str(folder), "files": files}
    print_result(document, [f"{folder}: {', '.join(files)}"], as_json=as_json)
