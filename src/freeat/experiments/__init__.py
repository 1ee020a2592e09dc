"""Experiments: comparisons, sweeps over attacks and radii, transfer matrices, and the paper's experiments."""
