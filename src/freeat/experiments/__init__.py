"""Experiments: lists of specs, carried out side by side."""
