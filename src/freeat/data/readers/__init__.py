"""Readers of published files and of users' own: one module per family of formats, each returning `Arrays`."""
