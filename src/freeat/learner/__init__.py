"""The classifier with its optimizer: gradients, distributed training, schedules, weight averaging."""

from freeat.learner.learner import Learner, Loss

__all__ = ["Learner", "Loss"]
