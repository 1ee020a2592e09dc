"""PGD here, in foolbox and in ART reach the same robust accuracy on a robust net for the embedded digits."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from freeat import Vanilla
from freeat.attacks.pgd import Pgd
from freeat.learner import Learner
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf

DIGITS_BALLS: dict[str, Ball] = {"l2": L2(0.8), "linf": Linf(0.12)}
STEPS, IMAGES = 20, 500


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """A small net after a few seconds of adversarial training, and the images it is evaluated on."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(pixels / 16).float().view(-1, 1, 8, 8)
    y = torch.from_numpy(labels).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, 10),
        )
    learner = Learner(net, torch.optim.Adam(net.parameters(), lr=3e-3))
    vanilla = Vanilla(ball=L2(0.5), m=2, alpha=0.4)
    for epoch in range(8):
        for rows in torch.arange(IMAGES, len(x)).roll(37 * epoch).split(64):
            vanilla.step(learner, x[rows], y[rows])
    return net.eval().requires_grad_(False), x[:IMAGES], y[:IMAGES]


def foolbox_accuracy(net: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> float:
    import foolbox

    kind = foolbox.attacks.L2PGD if isinstance(ball, L2) else foolbox.attacks.LinfPGD
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    torch.manual_seed(0)
    _, adversarial, _ = kind(abs_stepsize=ball.eps / 4, steps=STEPS)(model, x, y, epsilons=ball.eps)
    return float((net(adversarial).argmax(-1) == y).double().mean())


def art_accuracy(net: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> float:
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    estimator = PyTorchClassifier(
        net, nn.CrossEntropyLoss(), tuple(x.shape[1:]), 10, clip_values=(0, 1), device_type="cpu"
    )
    pgd = ProjectedGradientDescentPyTorch(
        estimator,
        norm=2 if isinstance(ball, L2) else np.inf,
        eps=ball.eps,
        eps_step=ball.eps / 4,
        max_iter=STEPS,
        num_random_init=1,
        batch_size=IMAGES,
        verbose=False,
    )
    np.random.seed(0)  # noqa: NPY002 - the generator that ART reads
    adversarial = torch.from_numpy(pgd.generate(x.numpy(), y.numpy()))
    return float((net(adversarial).argmax(-1) == y).double().mean())


@pytest.mark.peer
@pytest.mark.parametrize("ball", DIGITS_BALLS.values(), ids=DIGITS_BALLS)
@pytest.mark.parametrize("theirs", [foolbox_accuracy, art_accuracy], ids=["foolbox", "art"])
def test_pgd_agrees_with_other_libraries(
    theirs: Callable[[nn.Module, Tensor, Tensor, Ball], float],
    ball: Ball,
    digits: tuple[nn.Module, Tensor, Tensor],
) -> None:
    pytest.importorskip("foolbox")
    pytest.importorskip("art")
    net, x, y = digits
    accuracy = (
        1
        - Pgd(steps=STEPS, iterate="last")(net, x, y, ball, ImageRng(0, range(IMAGES))).fooled.double().mean()
    )
    assert 0.2 < accuracy < 0.8, "an attack that fools all or none shows nothing"
    assert theirs(net, x, y, ball) == pytest.approx(float(accuracy), abs=0.01)
