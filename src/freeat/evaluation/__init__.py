"""Clean and robust accuracy of a model, with statistics and sanity checks."""
