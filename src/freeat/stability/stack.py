"""A stack of K models as one module: parameters with a leading axis K, forward a ``vmap`` of the plain model."""

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from freeat.errors import InputError


class Stack(nn.Module):
    """K copies of ``model`` that train side by side: images (K, b, C, H, W) to logits (K, b, classes).

    Elementwise optimizers, losses averaged over b and summed over K, and norms over the last three axes keep the
    members apart, so every algorithm trains a stack as it trains one model. Buffers are common to all members.
    """

    def __init__(self, model: nn.Module, members: int) -> None:
        if members < 1:
            raise InputError(f"a stack of {members} models: must have at least 1 member")
        refuse_running_statistics(model)
        super().__init__()
        self.members = members
        self.model = copy.deepcopy(model)
        for p in self.model.parameters():
            p.data = p.data.expand(members, *p.shape).clone()

    def forward(self, x: Tensor) -> Tensor:
        buffers = dict(self.model.named_buffers())

        def one(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            output: Tensor = functional_call(self.model, {**buffers, **parameters}, (x,))
            return output

        logits: Tensor = vmap(one)(dict(self.model.named_parameters()), x)
        return logits

    @torch.no_grad()
    def flat(self) -> Tensor:
        """Every member's weights as one row: (K, number of parameters)."""
        return torch.cat([p.flatten(1) for p in self.model.parameters()], dim=1)


def refuse_running_statistics(model: nn.Module) -> None:
    """Refuse layers that keep statistics of the batches they saw: in a stack they would mix the members."""
    for name, module in model.named_modules():
        if getattr(module, "running_mean", None) is not None:
            raise InputError(
                f"layer {name!r} ({type(module).__name__}) keeps running statistics, which do not stack: choose "
                "the model with group norm or none (suffix -gn or -nonorm), or train the runs separately"
            )


def refuse_own_draws(model: nn.Module) -> None:
    """Refuse layers that draw from the global generator: coupled runs would not share those draws."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise InputError(
                f"layer {name!r} ({type(module).__name__}, p = {module.p:g}) draws its own random numbers, which "
                "coupled runs cannot share: set p = 0, or choose a model without dropout"
            )
