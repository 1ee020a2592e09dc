"""The paper's tables and figures: what each needs, what was published, what was measured, what is claimed."""
