"""Images sent through a network, counted."""

from dataclasses import dataclass


@dataclass
class Passes:
    """Images sent through the network: with their backward pass, and forward only."""

    gradient: int = 0
    forward: int = 0
