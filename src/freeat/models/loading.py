"""Weights from any file into a model: safetensors, or a state dict read without executing code.

Files may nest the weights in a dictionary, prefix their names as a parallel or compiled module does, or hold a
normalization layer. The model's own names are looked up among the file's to find them.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from freeat.errors import InputError
from freeat.files.reading import PickleFile, check_weights, open_file, refusing
from freeat.files.tensors import load_tensors
from freeat.models.normalize import Normalization, Prepared, network_of

STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model", "net", "weights", "params", "ema_state_dict")
MEANS, STDS = ("mean", "mu"), ("std", "sigma")
State = dict[str, Tensor]


def load_weights(model: nn.Module, path: Path | str, *, channels: int) -> nn.Module:
    """The model with the weights of a file; where the file holds a normalization, it becomes the first layer."""
    path = Path(path).expanduser()
    network = network_of(model)
    filled, normalization = weights_for(network, path)
    for name, value in network.state_dict().items():
        if filled[name].shape != value.shape:
            raise InputError(
                f"{path.name}: {name} is {tuple(filled[name].shape)}, but {tuple(value.shape)} in the "
                "model: build the model with the classes and width the weights were trained with"
            )
    network.load_state_dict(filled)
    if normalization is None:
        return model
    layer = normalization.layer(channels)
    return model.normalized(layer) if isinstance(model, Prepared) else Prepared.of(model, normalize=layer)


def weights_for(model: nn.Module, path: Path) -> tuple[State, Normalization | None]:
    """The tensors of a file under the names of the model, of any shape, and the normalization that it holds."""
    state = read_state(path)
    prefix = _prefix(model, state, path)
    own = model.state_dict()
    extra = {name: value for name, value in state.items() if name.removeprefix(prefix) not in own}
    filled = {name: state.get(prefix + name, value) for name, value in own.items()}
    return filled, _normalization(extra, path)


def read_state(path: Path) -> State:
    """The tensors of a weights file by name, unwrapped."""
    if not path.exists():
        raise InputError(f"{path}: no such weights file")
    if path.suffix == ".safetensors":
        return load_tensors(path)[0]
    zipped = check_weights(path)
    with (
        open_file(path) as file,
        refusing(path, "weights file", "give a .safetensors file or a saved state dict"),
    ):
        try:
            if zipped:  # mapped into memory: what belongs to another model is never read
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            else:
                content = torch.load(PickleFile(path, file), map_location="cpu", weights_only=True)  # type: ignore[arg-type]
        except pickle.UnpicklingError:
            raise InputError(
                f"{path} holds more than tensors, and reading it would run code: save model.state_dict(), "
                "best as safetensors"
            ) from None
        state = _state_in(content)
    if state is None:
        raise InputError(f"{path} holds no state dict: save model.state_dict(), bare or under 'state_dict'")
    for name, value in state.items():
        if value.is_meta or value.layout != torch.strided or value.is_quantized or value.is_complex():
            raise InputError(
                f"{path}: {name} is not a tensor of real numbers with values (it is {value.dtype}, "
                f"{value.layout}, on {value.device}): save model.state_dict() of a model on the CPU"
            )
    return state


def _state_in(content: object) -> State | None:
    """The tensors of the first nested state dict, or else those of the content itself."""
    if not isinstance(content, Mapping):
        return None
    for name in STATE_DICT_KEYS:
        if nested := _state_in(content.get(name)):
            return nested
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)} or None


def _prefix(model: nn.Module, state: State, path: Path) -> str:
    """The prefix of the model's names in the file, e.g. ``module.``."""
    needed = [name for name in model.state_dict() if not name.endswith("num_batches_tracked")]
    if not needed:
        return ""
    candidates = {
        name.removesuffix(needed[0]) for name in state if name == needed[0] or name.endswith(f".{needed[0]}")
    }
    shortfalls = {p: [name for name in needed if p + name not in state] for p in candidates or {""}}
    best = min(shortfalls, key=lambda p: (len(shortfalls[p]), len(p)))
    if shortfalls[best]:
        raise InputError(
            f"{path.name} lacks {len(shortfalls[best])} of the model's {len(needed)} tensors, first "
            f"{shortfalls[best][0]!r}; it begins with {next(iter(state))!r}: the weights belong to another model; "
            "name theirs, with --model or as NETWORK@FILE"
        )
    return best


def _normalization(extra: State, path: Path) -> Normalization | None:
    """The normalization among tensors that are not the model's own; anything else there is refused."""
    known = {"num_batches_tracked", "n_averaged"}
    rest = {name: value for name, value in extra.items() if name.rpartition(".")[2] not in known}
    means = [value for name, value in rest.items() if name.rpartition(".")[2] in MEANS]
    stds = [value for name, value in rest.items() if name.rpartition(".")[2] in STDS]
    if len(means) == len(stds) == 1 and len(rest) == 2:
        return Normalization(mean=tuple(means[0].flatten().tolist()), std=tuple(stds[0].flatten().tolist()))
    if rest:
        raise InputError(
            f"{path.name} has {len(rest)} tensors that are not in the model, first {next(iter(rest))!r}: "
            "the weights belong to another model; name theirs, with --model or as NETWORK@FILE"
        )
    return None
