"""Problems and runs as hypothesis draws them: wide, but only where floats distinguish neighbouring values."""

from hypothesis import strategies as st

from freeat.theory import Problem


def between(low: float, high: float) -> st.SearchStrategy[float]:
    """A float whose logarithm is uniform in [log low, log high]."""
    return st.floats(min_value=0, max_value=1).map(lambda u: low * (high / low) ** u)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n = draw(st.integers(min_value=2, max_value=10**6))
    return Problem(
        beta=draw(between(1e-2, 1e2)),
        c=draw(between(1e-2, 1e1)),
        L=draw(between(1e-2, 1e2)),
        L_w=draw(between(1e-2, 1e2)),
        eps=draw(between(1e-2, 1e1)),
        psi=draw(between(1e-1, 1e3)),
        b=draw(st.integers(min_value=1, max_value=min(n, 512))),
        n=n,
    )


alphas = between(1e-2, 1e1)
updates = st.integers(min_value=1, max_value=10**6)
free_steps = st.integers(min_value=1, max_value=12)
enlargements = between(1.05, 20.0)
