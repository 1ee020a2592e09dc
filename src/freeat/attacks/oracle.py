"""The model as an attack sees it: logits in the arithmetic asked for, verdicts always in full precision."""

import torch
from torch import Tensor

from freeat.compute.passes import Passes
from freeat.compute.precision import Precision
from freeat.objectives import Model


def misclassified(logits: Tensor, y: Tensor) -> Tensor:
    """Whether each image's largest logit is not its label's."""
    return logits.detach().argmax(-1) != y


class Oracle:
    """Counts the passes it is asked for. Rough logits guide an attack; whether an image is fooled is then
    confirmed by the model itself, so that a bf16 attack never claims what fp32 does not show."""

    def __init__(self, f: Model, precision: str, x: Tensor) -> None:
        self.f = f
        self.precision = Precision(precision, x.device)
        self.passes = Passes()
        self.classes = 0  # known once the model has answered
        self.differentiable = True  # until an answer has no gradient

    @property
    def exact(self) -> bool:
        return self.precision.dtype is None

    def logits(self, x_adv: Tensor) -> Tensor:
        """The logits that guide the attack, in the precision asked for."""
        if torch.is_grad_enabled():
            self.passes.gradient += len(x_adv)
        else:
            self.passes.forward += len(x_adv)
        return self._seen(self.precision.run(self.f, x_adv))

    @torch.no_grad()
    def exact_logits(self, x_adv: Tensor) -> Tensor:
        """The logits that a verdict rests on."""
        self.passes.forward += len(x_adv)
        return self._seen(self.f(x_adv))

    def gradient(self, losses: Tensor, delta: Tensor) -> Tensor:
        """∇_δ of the losses; zero, and known to be none, where the model cut it off."""
        if losses.requires_grad:
            (g_delta,) = torch.autograd.grad(losses.sum(), delta, allow_unused=True)
            if g_delta is not None:
                return g_delta
        self.differentiable = False
        return torch.zeros_like(delta)

    def wrong(self, x_adv: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        """Whether the model is wrong at x_adv, where ``logits`` are already known from ``logits(x_adv)``."""
        wrong = misclassified(logits, y)
        if not self.exact and bool(wrong.any()):
            rows = wrong.nonzero().squeeze(-1)
            wrong[rows] = misclassified(self.exact_logits(x_adv[rows].detach()), y[rows])
        return wrong

    def _seen(self, logits: Tensor) -> Tensor:
        self.classes = logits.shape[-1]
        return logits
