"""Random streams whose draws a test decides."""

from torch import Tensor


class Rigged:
    """Draws that are always ``u``, one row per image."""

    def __init__(self, u: Tensor) -> None:
        self.u = u

    def uniform(self, purpose: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        assert purpose == "augment"
        return self.u.to(x.device).expand(*x.shape[:-3], *(shape or x.shape[-3:]))
