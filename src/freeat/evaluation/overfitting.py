"""Catastrophic overfitting noticed while it happens: one-step robustness stays high while PGD's falls away."""

from dataclasses import dataclass

from freeat.attacks.pgd import Pgd
from freeat.threat import Ball


@dataclass(frozen=True, kw_only=True)
class CollapseRule:
    """A run has collapsed when its one-step robust training accuracy exceeds its PGD accuracy by ``spread`` and
    the latter is below ``share`` of the best it had."""

    spread: float = 0.25
    share: float = 0.5

    def collapsed(self, one_step: float, pgd: float, best_pgd: float) -> bool:
        return one_step - pgd > self.spread and pgd < self.share * best_pgd

    def sentence(self, one_step: float, pgd: float, best_pgd: float) -> str:
        return (
            f"collapse (catastrophic overfitting): one-step robust training accuracy {one_step:.1%}, but only "
            f"{pgd:.1%} against PGD, which was {best_pgd:.1%} at its best; a smaller --alpha, more attack steps or "
            "free-m helps"
        )


def one_step_attack(ball: Ball) -> Pgd:
    """The full-length single step whose success a collapsed model fakes."""
    return Pgd(steps=1, alpha=ball.eps, start="zero", iterate="last")
