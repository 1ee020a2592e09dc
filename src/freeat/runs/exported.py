"""An exported folder: which files it holds, and how the model is built again from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from freeat import models
from freeat.errors import InputError
from freeat.files.documents import read_json, sha256
from freeat.files.tensors import load_tensors
from freeat.runs.spec import TrainSpec

FORMAT = 1
MANIFEST, WEIGHTS, CARD, ONNX = "freeat.json", "model.safetensors", "README.md", "model.onnx"
NEEDED = ("model", "input", "classes", "weights", "training")


@dataclass(frozen=True)
class Bundle:
    """The files of an exported model."""

    path: Path

    @property
    def exists(self) -> bool:
        return (self.path / MANIFEST).is_file()

    @property
    def manifest(self) -> dict[str, Any]:
        """Everything that is known of the model, as plain values."""
        document = read_json(self.path / MANIFEST, format=FORMAT)
        if missing := [key for key in NEEDED if key not in document]:
            raise InputError(
                f"{self.path / MANIFEST} is damaged: it lacks {missing[0]!r}; export the run again"
            )
        return document

    @property
    def spec(self) -> TrainSpec:
        """What the model was trained by."""
        return TrainSpec.of(self.manifest["training"]["spec"])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images the model takes."""
        channels, height, width = self.manifest["input"]["shape"]
        return channels, height, width

    def model(self, *, trust_code: bool = False) -> nn.Module:
        """The model with its weights, on the CPU in evaluation mode."""
        manifest = self.manifest
        path = self.path / WEIGHTS
        if not path.is_file():
            raise InputError(f"{path} is missing: copy the whole exported folder, or export the run again")
        if sha256(path) != manifest["weights"]["sha256"]:
            raise InputError(f"{path} is not the file that was exported (its SHA-256 differs): copy it again")
        made = manifest["model"]
        model = models.build(
            made["network"],
            classes=len(manifest["classes"]),
            shape=self.shape,
            args=made["args"],
            normalize=models.Normalization.parse(made["normalize"]) if made["normalize"] else None,
            trust_code=trust_code,
        )
        model.load_state_dict(load_tensors(path)[0])
        return model.eval()
