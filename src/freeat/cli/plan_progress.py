"""Progress of a reproduction: one bar over the estimated time of all tasks, a line for each that ends."""

import time
from typing import TYPE_CHECKING

import click
from rich.progress import TaskID

from freeat.cli.progress import Bar, describe
from freeat.reports.plan import duration

if TYPE_CHECKING:
    from freeat.experiments.paper.experiment import Piece
    from freeat.experiments.paper.planner import Plan
    from freeat.tasks.scheduler import Done, Tick


class PlanProgress(Bar):
    """Watches the tasks of a plan; what each takes is weighed by its estimate."""

    def __init__(self, plan: "Plan") -> None:
        super().__init__()
        self.seconds = {item.name: item.seconds for item in plan.items}
        self.shares = dict.fromkeys(self.seconds, 0.0)
        self.done = 0
        self._began = time.monotonic()
        self._found = 0.0
        self._task: TaskID | None = None

    def tick(self, tick: "Tick") -> None:
        self.shares[tick.name] = tick.update / tick.total
        self._show()

    def finished(self, done: "Done[Piece]", *, found: bool) -> None:
        """A task ended; ``found``: it was finished before."""
        name = done.task.name
        self.shares[name] = 1.0
        self.done += 1
        if found:
            self._found += self.seconds[name]
        line = f"[{self.done}/{len(self.shares)}{self._left()}] {name}: {self._outcome(done, found)}"
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False)
        else:
            click.echo(line, err=True)
        self._show()

    @staticmethod
    def _outcome(done: "Done[Piece]", found: bool) -> str:
        if done.result is None:
            return f"FAILED: {done.failure}"
        said = describe(done.result) if "gap" in done.result else f"{len(done.result['cells'])} cells"
        return f"found: {said}" if found else said

    def _left(self) -> str:
        """The time that remains, if the rest is to its estimate as what was done so far."""
        total = sum(self.seconds.values())
        spent = sum(self.seconds[name] * share for name, share in self.shares.items())
        worked = spent - self._found
        if worked <= 0 or spent >= total:
            return ""
        return f", {duration((time.monotonic() - self._began) / worked * (total - spent))} left"

    def _show(self) -> None:
        if self.bar is None:
            return
        if self._task is None:
            self._task = self.bar.add_task(
                "reproducing", total=sum(self.seconds.values()), unit="s of work", latest=""
            )
        spent = sum(self.seconds[name] * share for name, share in self.shares.items())
        self.bar.update(self._task, completed=spent)
