"""freeat: adversarial training whose robustness generalizes."""

__version__ = "0.1.0"
