"""``freeat export``: a run's model as a folder that other programs can use."""

from pathlib import Path

import click

from freeat.cli.options import json_option, path_option, print_result, trust_code_option, trusts_code
from freeat.errors import InputError


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
@click.option(
    "--push",
    metavar="OWNER/NAME",
    help="also push the folder to the Hugging Face Hub under this name, as one commit (freeat[hub]); you must "
    "be logged in (`hf auth login`)",
)
@click.option("--private", is_flag=True, help="with --push: make a new model private")
@click.option("--model", help="repeat the import path of the run's model to allow importing it")
@trust_code_option
@json_option
def export(
    run: Path,
    out: Path | None,
    weights: str,
    onnx: bool,
    robustbench: bool,
    push: str | None,
    private: bool,
    model: str | None,
    trust_code: bool,
    as_json: bool,
) -> None:
    """Write the model of the finished run in folder RUN as safetensors, JSON and a model card.

    The folder holds all that `freeat.load(FOLDER)` needs to build the model again, and a model card (README.md) with
    its clean and robust accuracy, gap, threat model and limitations.

    \b
    freeat export runs/free
    freeat export runs/free --push me/free-digits      # then: freeat.load("hf://me/free-digits@COMMIT")
    """
    from freeat.interop.export import export as write
    from freeat.interop.export import push_export
    from freeat.runs.folder import RunFolder

    if private and push is None:
        raise InputError("--private is of --push: give the name to push to, or leave it out")
    if push is not None:
        from freeat.files.hub import check_push
        from freeat.runs.open import MANIFEST

        check_push(push, marker=MANIFEST)  # before anything is written
    trusted = trusts_code(trust_code, model == RunFolder(run).spec.model)
    folder = write(run, out, weights=weights, onnx=onnx, robustbench=robustbench, trust_code=trusted)
    files = sorted(path.name for path in folder.iterdir())
    pushed = None if push is None else str(push_export(folder, push, private=private))
    document = {"folder": str(folder), "files": files} | ({} if pushed is None else {"hub": pushed})
    lines = [f"{folder}: {', '.join(files)}", *([] if pushed is None else [f"pushed: {pushed}"])]
    print_result(document, lines, as_json=as_json)
