"""Specs, run folders and stored results; how a spec becomes objects and a stored model a module."""
