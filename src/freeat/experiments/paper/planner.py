"""Which tasks a reproduction consists of: those that fit its budget, the most important ones first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from freeat.experiments.paper.costing import Cost
from freeat.experiments.paper.experiment import Entry, Experiment, Piece
from freeat.experiments.paper.tables import HEADLINE
from freeat.experiments.tasks import Training
from freeat.runs.reading import found_result

USABLE = 0.9
"""The part of a budget that is planned: the rest is for starting workers, for their waiting at the end, and for
outputs."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What a reproduction does without, and why."""

    what: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A task with its importance: 0 before 1 and so on."""

    task: Piece
    rank: int


@dataclass(frozen=True, kw_only=True)
class Item:
    """A task of a plan, by its key, with its estimated cost."""

    key: str
    name: str
    rank: int
    passes: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The tasks to carry out, in their order, and what was left out."""

    items: tuple[Item, ...]
    left_out: tuple[LeftOut, ...]
    workers: int
    budget: float | None

    @property
    def seconds(self) -> float:
        """Estimated time of all tasks, spread over the workers."""
        return sum(item.seconds for item in self.items) / self.workers

    def words(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": self.seconds}

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> "Plan":
        return cls(
            items=tuple(Item(**item) for item in words["items"]),
            left_out=tuple(LeftOut(**one) for one in words["left_out"]),
            workers=words["workers"],
            budget=words["budget"],
        )


def wishes(experiments: Iterable[Experiment]) -> list[Wish]:
    """Every task of the experiments once, with the highest importance that any of them gives it."""
    found: dict[str, Wish] = {}
    for experiment in experiments:
        for entry in experiment.entries:
            for task in entry.tasks:
                rank = _rank(experiment, entry, task)
                if task.key not in found or rank < found[task.key].rank:
                    found[task.key] = Wish(task=task, rank=rank)
    return sorted(found.values(), key=lambda wish: (wish.rank, _seed(wish.task)))


def _rank(experiment: Experiment, entry: Entry, task: Piece) -> int:
    """First the rows that decide the first claims, then the other rows, then figures, then further seeds."""
    headline = entry.label.startswith(HEADLINE)
    if experiment.kind == "table" and headline:
        return 0
    if isinstance(task, Training) and task.spec.seed > 0 and not headline:
        return 3
    return 1 if experiment.kind == "table" else 2


def _seed(task: Piece) -> int:
    return (task if isinstance(task, Training) else task.target).spec.seed


def fit(wishes: Sequence[Wish], cost: Callable[[Piece], Cost], *, budget: float | None, workers: int) -> Plan:
    """Take the tasks in their order as long as the budget lasts; a smaller one may fit where a larger did not.

    What is finished already costs nothing. The chosen ones are carried out by importance, one seed after the other,
    so that what there is when it is stopped can be compared; of a seed the costly ones first, so that no worker is
    left with a long one at the end.
    """
    tasks = {wish.task.key: wish for wish in wishes}
    room = None if budget is None else USABLE * budget * workers
    chosen: dict[str, Item] = {}
    left_out: list[LeftOut] = []
    for wish in wishes:
        wanted = [tasks[key] for key in (*wish.task.needs, wish.task.key) if key not in chosen]
        items = [_item(one, cost(one.task)) for one in wanted]
        price = sum(
            0.0 if found_result(one.task) is not None else item.seconds
            for one, item in zip(wanted, items, strict=True)
        )
        if room is not None and price > room:
            left_out.append(LeftOut(what=wish.task.name, reason=_too_long(price, room, workers)))
            continue
        room = None if room is None else room - price
        chosen |= {item.key: item for item in items}

    def turn(item: Item) -> tuple[int, int, float]:
        return item.rank, _seed(tasks[item.key].task), -item.seconds

    order = sorted(chosen.values(), key=turn)
    return Plan(items=tuple(order), left_out=tuple(left_out), workers=workers, budget=budget)


def _item(wish: Wish, cost: Cost) -> Item:
    task = wish.task
    return Item(key=task.key, name=task.name, rank=wish.rank, passes=cost.passes, seconds=cost.seconds)


def _too_long(price: float, room: float, workers: int) -> str:
    return f"takes about {price / workers:.0f} s, and {room / workers:.0f} s of the budget are left"
