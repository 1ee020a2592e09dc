"""Clean and robust risk of a model: the evaluator, its statistics and sanity checks."""
