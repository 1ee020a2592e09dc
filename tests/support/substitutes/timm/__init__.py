"""A substitute for timm with its interface and three small networks, for machines where timm is not installed.

The signatures and fields are those of timm 1.0: ``create_model``, ``list_models``, ``get_pretrained_cfg``.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__version__ = "1.0.0"
fetched: list[str] = []
"""The names of networks whose published weights were asked for."""


@dataclass
class PretrainedCfg:
    """What is known of published weights."""

    input_size: tuple[int, int, int] = (3, 224, 224)
    min_input_size: tuple[int, int, int] | None = None
    fixed_input_size: bool = False
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    num_classes: int = 1000
    classifier: str | tuple[str, ...] | None = None


class Vit(nn.Module):
    """Patches, one position each, and a head; of one size only."""

    def __init__(self, num_classes: int, in_chans: int = 3, img_size: int = 16, embed_dim: int = 12) -> None:
        super().__init__()
        self.img_size = img_size
        self.patch_embed = nn.Conv2d(in_chans, embed_dim, 4, 4)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, (img_size // 4) ** 2, embed_dim))
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        torch._assert(x.shape[-1] == self.img_size, "another size")
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        return self.head(self.norm(tokens).mean(1))


class Convolutional(nn.Module):
    """A network for any size from 4 on, with batch norm."""

    def __init__(self, num_classes: int, in_chans: int = 3) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(in_chans, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))


class Distilled(Vit):
    """Two heads, whose mean is the answer."""

    def __init__(self, num_classes: int, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.head_dist = nn.Linear(self.head.in_features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        tokens = self.norm(tokens).mean(1)
        return (self.head(tokens) + self.head_dist(tokens)) / 2


_HALVES: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
_MODELS: dict[str, tuple[type[nn.Module], PretrainedCfg]] = {
    "vit_small_patch4_16": (
        Vit,
        PretrainedCfg(input_size=(3, 16, 16), fixed_input_size=True, classifier="head", **_HALVES),
    ),
    "resnet3": (Convolutional, PretrainedCfg(min_input_size=(3, 4, 4), classifier="fc")),
    "deit_small_distilled": (
        Distilled,
        PretrainedCfg(input_size=(3, 16, 16), fixed_input_size=True, classifier=("head", "head_dist")),
    ),
}


def list_models() -> list[str]:
    return list(_MODELS)


def get_pretrained_cfg(model_name: str, allow_unregistered: bool = True) -> PretrainedCfg | None:
    name, _, tag = model_name.partition(".")
    return None if tag == "unknown" else _MODELS[name][1]


def create_model(
    model_name: str,
    pretrained: bool = False,
    pretrained_cfg: Any = None,
    checkpoint_path: str | None = None,
    **kwargs: Any,
) -> nn.Module:
    """A network; with published weights all but a head for other classes are drawn from one seed."""
    kind, config = _MODELS[model_name.partition(".")[0]]
    model = kind(**kwargs)
    if pretrained:
        fetched.append(model_name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            published = kind(**{**kwargs, "num_classes": config.num_classes}).state_dict()
        fitting = {n: v for n, v in published.items() if v.shape == model.state_dict()[n].shape}
        model.load_state_dict(fitting, strict=False)
    return model
