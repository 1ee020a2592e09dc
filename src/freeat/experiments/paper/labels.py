"""How the rows and series of the paper are called in data, documents and claims."""

ERM = "erm"
VANILLA = "vanilla-10"
FAST = "fast"
FAST_SHORT_STEP = "fast-7/255"
"""Fast as everywhere else, where it is drawn beside the longer step."""

FAST_LONG_STEP = "fast-10/255"
"""Fast with the attack step 10/255 in Linf, which overfits catastrophically (Figure 11, Table 6)."""

FREE = "free-4"
FREE_STEPS = (2, 4, 6, 8, 10)
TRADES = "trades-10"
FREE_TRADES = "free-trades-4"
FRIENDLY = "friendly-10"
FRIENDLY_TWICE = "friendly-10-2eps"
"""Friendly trained at 2ε and judged at ε (Table 2)."""


def free(m: int) -> str:
    """The label of Free-m."""
    return f"free-{m}"
