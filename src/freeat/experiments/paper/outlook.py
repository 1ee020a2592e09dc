"""What lies before a reproduction: its plan, what of it is finished, and what absent data sets would add."""

from dataclasses import asdict, dataclass
from typing import Any

from freeat.experiments.paper.planner import Item, Plan


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A plan with the keys of its finished tasks, and the tasks of data sets that are not here, priced."""

    plan: Plan
    finished: frozenset[str] = frozenset()
    absent: tuple[Item, ...] = ()

    @property
    def remaining(self) -> float:
        """Estimated seconds of the tasks that are not finished, spread over the workers."""
        waiting = (item.seconds for item in self.plan.items if item.key not in self.finished)
        return sum(waiting) / self.plan.workers

    def words(self) -> dict[str, Any]:
        items = [asdict(item) | {"finished": item.key in self.finished} for item in self.plan.items]
        return self.plan.words() | {
            "items": items,
            "remaining": self.remaining,
            "absent_items": [asdict(item) for item in self.absent],
        }
