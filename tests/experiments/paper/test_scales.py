"""What every scale must keep of the paper."""

import pytest

from freeat.experiments.paper.scales import NIGHT, SCALES, find_scale
from freeat.experiments.paper.settings import NORMS, radius


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("norm", NORMS)
def test_square_is_run_at_the_training_radii(name: str, norm: str) -> None:
    """The claim that no gradients are masked compares it with PGD there."""
    scale = find_scale(name)
    radii = scale.square_grid.radii(norm)
    assert all(radius(data, norm) in radii for data in ("cifar10", "cifar100", "tiny-imagenet"))


@pytest.mark.parametrize("name", SCALES)
def test_a_quarter_of_the_training_is_on_the_curve(name: str) -> None:
    assert find_scale(name).curve_points % 4 == 0


def test_the_paper_scale_has_the_papers_rate_batch_and_no_warmup() -> None:
    setups = find_scale("paper").setups.values()
    assert {(setup.lr, setup.b, setup.n, setup.warmup) for setup in setups} == {(0.1, 128, None, 0.0)}


def test_an_unknown_scale_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="hour"):
        find_scale("houre")


def test_a_night_trains_on_a_thousand_images_or_more() -> None:
    assert min(NIGHT.sizes) >= 1000
    assert all((setup.n or 0) >= 1000 for setup in NIGHT.setups.values())
