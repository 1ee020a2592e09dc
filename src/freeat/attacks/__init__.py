"""Attacks: functions that look for a perturbation δ in a ball that raises a loss."""
