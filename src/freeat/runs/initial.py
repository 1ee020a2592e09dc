"""Initial weights taken from somewhere else: a run folder or a weights file, with a new head where classes differ."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from freeat.errors import InputError
from freeat.files.tensors import load_tensors
from freeat.runs.folder import RunFolder


def start_from(model: nn.Module, source: str) -> list[str]:
    """Load the weights of a run folder or a .safetensors file into the model; returns the names of new tensors.

    Tensors of the last layer whose shape does not fit (another number of classes) keep their fresh values.
    """
    state = _weights(Path(source).expanduser())
    own = model.state_dict()
    missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unknown:
        what = f"lack {missing[0]!r}" if missing else f"have {unknown[0]!r}"
        raise InputError(f"the weights in {source} {what} unlike the model: they belong to another --model")
    misfits = [name for name in own if own[name].shape != state[name].shape]
    head = list(own)[-2:]  # a classifier ends with the weight and bias of its head
    if not set(misfits) <= set(head):
        name = next(name for name in misfits if name not in head)
        raise InputError(
            f"{name} is {tuple(state[name].shape)} in {source} and {tuple(own[name].shape)} in the model: "
            "only the head may differ; use the same --model"
        )
    model.load_state_dict({name: own[name] if name in misfits else state[name] for name in own})
    return misfits


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of all weights and statistics."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _weights(path: Path) -> dict[str, Tensor]:
    if path.is_dir():
        return RunFolder(path).weights()[0]
    return load_tensors(path)[0]
