"""Any algorithm of freeat in a Lightning module, by manual optimization.

Lightning owns the device, the strategy and the precision; the learner uses its optimizer and its backward pass.

    pip install lightning
    python examples/lightning_module.py
"""

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import freeat


class RobustClassifier(lightning.LightningModule):
    """A classifier that is trained by any algorithm, against the ball it was made for."""

    def __init__(self, model: nn.Module, algorithm: freeat.Algorithm, lr: float = 3e-3) -> None:
        super().__init__()
        self.automatic_optimization = False  # Free owns several optimizer steps per batch
        self.model, self.algorithm, self.lr = model, algorithm, lr
        self.learner: freeat.Learner | None = None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=self.lr)

    def on_fit_start(self) -> None:
        optimizer: Any = self.optimizers()
        # Each process draws for its own images.
        self.learner = freeat.Learner(
            self.model, optimizer, seed=self.global_rank, backward=self.manual_backward
        )

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        assert self.learner is not None
        record = self.algorithm.step(self.learner, *batch)
        self.log("loss", record.losses.mean(), prog_bar=True)


def main(epochs: int = 6, **trainer: Any) -> freeat.RobustGap:
    data = freeat.load_data("digits")
    images = TensorDataset(*data.train.batch(torch.arange(len(data.train))))
    loader = DataLoader(images, batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    ball = freeat.L2(0.5)
    module = RobustClassifier(net, freeat.Free(m=4, ball=ball))
    settings = {"accelerator": "auto", "devices": 1, "logger": False, "enable_checkpointing": False}
    lightning.Trainer(max_epochs=epochs, **settings | trainer).fit(module, loader)

    found = freeat.robust_gap(net, data, data, ball, attack="pgd-10")
    print(found)
    return found


if __name__ == "__main__":
    main()
