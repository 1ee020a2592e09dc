"""A model as an ONNX file with a free batch size, checked against the model itself."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from freeat.errors import InputError, need

TOLERANCE = 1e-5
BATCHES = (1, 2, 7)
"""The batch sizes at which both are compared: one image, the size of the trace, and another."""


def write_onnx(
    model: nn.Module, path: Path, shape: tuple[int, int, int], facts: Mapping[str, str] | None = None
) -> float:
    """Write the model (in evaluation mode, on the CPU) and return the largest difference of onnxruntime's logits.

    One that exceeds ``TOLERANCE``, relative to the largest logit, is refused. ``facts`` become the file's metadata.
    """
    for module in ("onnx", "onnxscript", "onnxruntime"):
        need(module, extra="onnx", what="ONNX")
    images = torch.rand(max(BATCHES), *shape, generator=torch.Generator().manual_seed(0))
    try:
        with _quiet_exporter():
            torch.onnx.export(
                model,
                (images[:2],),
                path,
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # the exporter may fail in any way on a user's layers
        raise InputError(
            f"the model cannot be written as ONNX: {type(error).__name__}: {str(error).splitlines()[0]}; "
            "export it without --onnx"
        ) from error
    if facts:
        onnx = need("onnx", extra="onnx", what="ONNX")
        document = onnx.load(path)
        onnx.helper.set_model_props(document, dict(facts))
        onnx.save(document, path)
    return _largest_difference(model, path, images)


def _largest_difference(model: nn.Module, path: Path, images: Tensor) -> float:
    runtime = need("onnxruntime", extra="onnx", what="ONNX")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    largest = 0.0
    for size in BATCHES:
        with torch.no_grad():
            expected = model(images[:size])
        (found,) = session.run(["logits"], {"images": images[:size].numpy()})
        difference = float((torch.from_numpy(found) - expected).abs().max())
        allowed = TOLERANCE * max(1.0, float(expected.abs().max()))
        if not difference <= allowed:
            raise InputError(
                f"the ONNX model's logits differ from the model's by {difference:.2g}, more than {allowed:.2g}, in "
                f"batches of {size}: export it without --onnx"
            )
        largest = max(largest, difference)
    return largest


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter's messages about its own internals and about optional packages."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
