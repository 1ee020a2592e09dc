"""What a task will cost on this machine: passes counted, seconds from timed steps."""

from dataclasses import asdict, dataclass, field
from typing import Any

from freeat.experiments.paper.clock import Rates, Stopwatch, time_loading
from freeat.experiments.paper.effort import Ground, ground_of, work_of
from freeat.experiments.paper.experiment import Piece
from freeat.experiments.tasks import Site, Training


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Passes of single images through a network, and the seconds they take one worker."""

    passes: float
    seconds: float


@dataclass(kw_only=True)
class Estimator:
    """Prices tasks; every network and data set is looked at once."""

    site: Site
    stopwatch: Stopwatch
    grounds: dict[str, Ground] = field(default_factory=dict)
    loading: dict[str, float] = field(default_factory=dict)
    rates: dict[tuple[str, str], Rates] = field(default_factory=dict)

    def __call__(self, task: Piece) -> Cost:
        """The cost of a task, with the reading of its data."""
        data = (task if isinstance(task, Training) else task.target).spec.data
        passes, seconds = 0.0, self._loading(data)
        for run, work in work_of(task, self._ground(data)):
            passes += work.passes
            seconds += self._rates(run).seconds(work)
        return Cost(passes=passes, seconds=seconds)

    def document(self) -> dict[str, Any]:
        """What was measured, for the record."""
        seconds = {f"{model} on {data}": asdict(rates) for (model, data), rates in self.rates.items()}
        return {
            "seconds_per_image": seconds,
            "seconds_to_load": self.loading,
            "workers": self.stopwatch.workers,
        }

    def _ground(self, data: str) -> Ground:
        if data not in self.grounds:
            self.grounds[data] = ground_of(data, self.site.data_dir)
        return self.grounds[data]

    def _loading(self, data: str) -> float:
        if data not in self.loading:
            self.loading[data] = time_loading(data, self.site)
        return self.loading[data]

    def _rates(self, run: Training) -> Rates:
        spec = run.spec
        if (spec.model, spec.data) not in self.rates:
            self.rates[spec.model, spec.data] = self.stopwatch.rates(spec, self._ground(spec.data))
        return self.rates[spec.model, spec.data]
