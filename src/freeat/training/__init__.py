"""The training loop, and the trainer around it: evaluations, checkpoints, guards, callbacks."""
