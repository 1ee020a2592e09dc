"""A model as an ONNX file with a free batch size, checked against the model itself."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from freeat.errors import InputError, need

TOLERANCE = 1e-5
BATCHES = (1, 2, 7)
"""The sizes of the batches on which both are compared: one alone, the one it was traced with, another."""


def write_onnx(model: nn.Module, path: Path, shape: tuple[int, int, int]) -> float:
    """Write the model (in evaluation mode, on the CPU) and return the largest difference of onnxruntime's logits.

    One that exceeds ``TOLERANCE``, relative to the largest logit, is refused.
    """
    for module in ("onnx", "onnxscript", "onnxruntime"):
        need(module, extra="onnx", what="ONNX")
    images = _images(max(BATCHES), shape)
    try:
        with _hushed():
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
    except Exception as error:  # an exporter may fail on anybody's layers in any way
        raise InputError(
            f"the model cannot be written as ONNX: {type(error).__name__}: {str(error).splitlines()[0]}; "
            "export it without --onnx"
        ) from error
    return _largest_difference(model, path, images)


def _largest_difference(model: nn.Module, path: Path, images: Tensor) -> float:
    session = _session(path)
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
def _hushed() -> Iterator[None]:
    """Without what the exporter says of its own insides and of packages it could also know."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _session(path: Path) -> Any:
    runtime = need("onnxruntime", extra="onnx", what="ONNX")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _images(n: int, shape: tuple[int, int, int]) -> Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(0))
