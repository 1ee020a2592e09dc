"""A network that waits where $WAIT_IN says, as for a file that never comes, and says so in the file $WAITING."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn


def _wait(*, deaf: bool = False) -> None:
    Path(os.environ["WAITING"]).touch()
    if deaf:  # the main thread sees no signal, as inside a library that handles them itself
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        time.sleep(600)
    with open(os.environ["WAIT_FOR"]) as pipe:  # nothing writes to it
        pipe.read()


class Net(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.layer = nn.Linear(64, classes)
        self.calls = 0
        self.waits = os.environ["WAIT_IN"] == "training"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy that never waits: steps are timed on copies, before the training begins."""
        twin = type(self)(self.layer.out_features)
        twin.load_state_dict(self.state_dict())
        twin.waits = False
        memo |= {id(own): new for own, new in zip(self.parameters(), twin.parameters(), strict=True)}
        return twin

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        if self.waits and self.calls > 5:
            _wait()
        logits: Tensor = self.layer(x.flatten(1))
        return logits


def factory() -> nn.Module:
    where = os.environ["WAIT_IN"]
    if where == "checks" or (where == "worker" and multiprocessing.parent_process() is not None):
        _wait()
    if where == "deaf checks":
        _wait(deaf=True)
    return Net()
