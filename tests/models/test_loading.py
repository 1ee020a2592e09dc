"""Weights from any file: wrappings, prefixes, normalizations, and files that must be refused."""

import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from freeat.errors import InputError
from freeat.files import reading
from freeat.models import build
from freeat.models.loading import load_weights, read_state
from freeat.models.normalize import Normalization

SHAPE = (3, 8, 8)


def net(seed: int = 0) -> nn.Module:
    return build("cnn-w4", classes=4, shape=SHAPE, seed=seed).eval()


def logits(model: nn.Module) -> Tensor:
    x = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output: Tensor = model.eval()(x)
    return output


WRAPPED = {
    "bare": lambda state: state,
    "state_dict": lambda state: {"epoch": 3, "state_dict": state},
    "beside a tensor": lambda state: {"best_acc": torch.tensor(0.9), "state_dict": state},
    "beside settings": lambda state: {**state, "params": {"lr": 0.1}},
    "nested": lambda state: {"model": {"state_dict": state}},
    "parallel": lambda state: {f"module.{name}": value for name, value in state.items()},
    "compiled": lambda state: {"state_dict": {f"module._orig_mod.{k}": v for k, v in state.items()}},
    "untracked": lambda state: {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")},
}


@pytest.mark.parametrize("wrapping", WRAPPED)
def test_wrappings_and_prefixes(wrapping: str, tmp_path: Path) -> None:
    torch.save(WRAPPED[wrapping](net(1).state_dict()), tmp_path / "w.pt")
    loaded = load_weights(net(0), tmp_path / "w.pt", channels=3)
    assert torch.equal(logits(loaded), logits(net(1)))


def test_safetensors(tmp_path: Path) -> None:
    save_file(net(1).state_dict(), tmp_path / "w.safetensors")
    assert torch.equal(logits(load_weights(net(0), tmp_path / "w.safetensors", channels=3)), logits(net(1)))


@pytest.mark.parametrize(
    ("mean", "std", "inner"), [("0.mean", "0.std", "1."), ("normalize.mu", "normalize.sigma", "model.")]
)
def test_a_normalization_in_front_becomes_a_layer(mean: str, std: str, inner: str, tmp_path: Path) -> None:
    chosen = Normalization(mean=(0.5, 0.25, 0.125), std=(0.25, 0.5, 1.0))
    state = {f"{inner}{name}": value for name, value in net(1).state_dict().items()}
    state |= {
        mean: torch.tensor(chosen.mean).view(1, 3, 1, 1),
        std: torch.tensor(chosen.std).view(1, 3, 1, 1),
    }
    torch.save(state, tmp_path / "w.pt")
    loaded = load_weights(net(0), tmp_path / "w.pt", channels=3)
    assert torch.equal(logits(loaded), logits(nn.Sequential(chosen.layer(3), net(1))))


class Payload:
    """Something whose unpickling would run code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


def test_bad_weights_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.pt"

    def refused(content: object, message: str) -> None:
        torch.save(content, path)
        with pytest.raises(InputError, match=message):
            load_weights(net(), path, channels=3)

    with pytest.raises(InputError, match="no such weights file"):
        load_weights(net(), path, channels=3)
    refused({"state_dict": Payload()}, "would run code")
    assert "run" not in capsys.readouterr().out
    refused({"epoch": 3}, "no state dict")
    refused([1, 2], "no state dict")
    state = dict(net().state_dict())
    first = next(iter(state))
    refused({name: value for name, value in state.items() if name != first}, "lacks")
    refused(build("cnn-w4", classes=5, shape=SHAPE).state_dict(), "build the model with the classes")
    refused(state | {"extra.weight": torch.zeros(3)}, "are not in the model")
    path.write_bytes(b"not a file of torch")
    with pytest.raises(InputError):
        load_weights(net(), path, channels=3)


def test_compressed_weights_are_refused_before_they_expand(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1 << 20)}, tmp_path / "stored.pt")
    with (
        zipfile.ZipFile(tmp_path / "stored.pt") as stored,
        zipfile.ZipFile(tmp_path / "deflated.pt", "w", zipfile.ZIP_DEFLATED) as deflated,
    ):
        for member in stored.infolist():
            deflated.writestr(member.filename, stored.read(member))
    assert read_state(tmp_path / "stored.pt")["w"].shape == (1 << 20,)
    assert (tmp_path / "deflated.pt").stat().st_size < 1 << 14
    with pytest.raises(InputError, match=r"expands from \d+ bytes to \d+: weights are stored uncompressed"):
        read_state(tmp_path / "deflated.pt")


def test_weights_larger_than_any_file_that_is_read_whole_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LARGEST_FILE", 1 << 10)
    state = {"w": torch.ones(1 << 12)}
    torch.save(state, tmp_path / "w.pt")
    save_file(state, tmp_path / "w.safetensors")
    for name in ("w.pt", "w.safetensors"):
        assert torch.equal(read_state(tmp_path / name)["w"], state["w"])


def test_weights_of_gigabytes_take_no_memory_before_they_are_known_to_be_those_of_the_model(
    tmp_path: Path,
) -> None:
    resource = pytest.importorskip("resource", reason="POSIX's")
    with torch.serialization.skip_data():  # a file of holes
        torch.save({"w": torch.empty(3 << 28)}, tmp_path / "w.pt")
    assert (tmp_path / "w.pt").stat().st_size > 3 << 30
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="belong to another model"):
        load_weights(net(), tmp_path / "w.pt", channels=3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # in KiB


def test_an_old_file_of_weights_is_read_and_what_it_claims_is_limited(tmp_path: Path) -> None:
    state, path = {"w": torch.ones(1 << 12)}, tmp_path / "w.pt"
    torch.save(state, path, _use_new_zipfile_serialization=False)
    assert torch.equal(read_state(path)["w"], state["w"])
    content = path.read_bytes()
    with path.open("wb") as file:  # its first value, then text of 2 GiB
        file.write(content[:15] + b"\x80\x02X\xff\xff\xff\x7f")
        file.truncate(3 << 30)
    with pytest.raises(InputError, match="a value in it has 2147483647 bytes, and at most 67108864 are read"):
        read_state(path)
    with path.open("wb") as file:
        file.write(content)
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="has 1099511627776 bytes, and at most 4294967296 are read"):
        read_state(path)
