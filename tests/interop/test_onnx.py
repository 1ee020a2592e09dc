"""The ONNX file: onnxruntime's logits are the model's, for any batch, and a model that differs is refused."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from freeat import errors
from freeat.errors import InputError
from freeat.interop import onnx_file
from freeat.interop.onnx_file import write_onnx
from freeat.models import build


@pytest.fixture
def runtime() -> object:
    modules = [
        pytest.importorskip(name, reason="pip install 'freeat[onnx]'")
        for name in ("onnx", "onnxscript", "onnxruntime")
    ]
    return modules[-1]


@pytest.mark.parametrize("name", ["cnn-w4", "preact-resnet18-w4"])
def test_onnx_gives_the_same_logits(runtime: object, tmp_path: Path, name: str) -> None:
    shape = (3, 32, 32)
    model = build(name, classes=7, shape=shape).eval()
    assert write_onnx(model, tmp_path / "model.onnx", shape) < 1e-4
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    x = torch.rand(5, *shape, generator=torch.Generator().manual_seed(3))
    (found,) = session.run(None, {"images": x.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), model(x), atol=1e-5, rtol=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_model_that_differs_is_refused(
    runtime: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "TOLERANCE", -1.0)
    with pytest.raises(InputError, match="logits differ"):
        write_onnx(build("linear", classes=3, shape=(1, 8, 8)).eval(), tmp_path / "m.onnx", (1, 8, 8))


class Eigenvalues(nn.Module):
    """An operation that ONNX does not have."""

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = torch.linalg.eigvalsh(x.squeeze(1))
        return values


def test_a_model_that_cannot_be_written_is_refused(runtime: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written as ONNX"):
        write_onnx(Eigenvalues(), tmp_path / "m.onnx", (1, 8, 8))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> object:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(errors.importlib, "import_module", nothing)
    with pytest.raises(InputError, match=r"pip install 'freeat\[onnx\]'"):
        write_onnx(build("linear", classes=3, shape=(1, 8, 8)), tmp_path / "m.onnx", (1, 8, 8))
