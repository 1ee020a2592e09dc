"""The scheduler: order, needs, failures, and tasks of other processes."""

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.files.locks import Busy, LeaseLost, leased
from freeat.tasks import Backend, EndedTask, NoProgress, Task, TaskOutcome, make_backend, run_tasks, scheduler
from freeat.tasks.scheduler import Tick, attempt
from freeat.training.records import Callback, Callbacks
from freeat.training.trainer import Stopped
from seen import Seen


@dataclass(kw_only=True)
class MemoryTask:
    """A task in memory that does what its script says, then succeeds."""

    name: str
    needs: tuple[str, ...] = ()
    script: list[Exception] = field(default_factory=list)
    stored: bool = False
    begun: int = 0
    threads: int = 1

    @property
    def key(self) -> str:
        return self.name

    def finished(self) -> bool:
        return self.stored

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        self.begun += 1
        if self.script:
            raise self.script.pop(0)
        self.stored = True

    def summary(self) -> str:
        return "done"


class RandomOrderBackend:
    """A backend whose tasks end in any order, one at each look."""

    def __init__(self, slots: int = 2, seed: int = 0) -> None:
        self.slots = self.workers = slots
        self.flying: list[tuple[Future[TaskOutcome], Task]] = []
        self.log: list[tuple[str, str]] = []
        self._rng = random.Random(seed)

    def submit(self, task: Task) -> "Future[TaskOutcome]":
        self.log.append(("begin", task.key))
        self.flying.append((Future(), task))
        assert len(self.flying) <= self.slots
        return self.flying[-1][0]

    def ticks(self) -> Iterator[Tick]:
        if self.flying:
            future, task = self.flying.pop(self._rng.randrange(len(self.flying)))
            self.log.append(("end", task.key))
            future.set_result(attempt(task, Callbacks(), lambda: False))
            yield Tick(name=task.name, done=1, total=1)

    def __enter__(self) -> "RandomOrderBackend":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "POLL", 0.0005)
    monkeypatch.setattr(scheduler, "PAUSES", (0.0005, 0.001))


def outcomes(tasks: list[MemoryTask], backend: Backend) -> dict[str, EndedTask[MemoryTask]]:
    done = run_tasks(tasks, backend)
    assert len(done) == len({o.task.key for o in done})
    return {o.task.name: o for o in done}


@st.composite
def grids(draw: st.DrawFn) -> list[MemoryTask]:
    """Tasks that need earlier ones, in any order; some fail, some are done, some are another process's for a while."""
    tasks: list[MemoryTask] = []
    for number in range(draw(st.integers(1, 8))):
        names = [task.name for task in tasks]
        needs = draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) if names else []
        task = MemoryTask(name=f"task-{number}", needs=tuple(needs))
        match draw(st.sampled_from(["well", "fails", "busy", "stored"])):
            case "fails":
                task.script = [draw(st.sampled_from([InputError("bad"), ZeroDivisionError("worse")]))]
            case "busy":
                task.script = [draw(st.sampled_from([Busy("in use"), LeaseLost("lost")]))] * draw(
                    st.integers(1, 3)
                )
            case "stored":
                task.stored = True
        tasks.append(task)
    return draw(st.permutations(tasks))


@given(grids(), st.integers(1, 3), st.integers(0, 5))
def test_every_task_ends_once_after_its_needs(tasks: list[MemoryTask], slots: int, seed: int) -> None:
    failing = {c.name for c in tasks if c.script and not isinstance(c.script[0], Busy | LeaseLost)}
    busy = {c.name: len(c.script) for c in tasks if c.script and c.name not in failing}
    stored = {c.name for c in tasks if c.stored}
    by_name = {c.name: c for c in tasks}
    backend = RandomOrderBackend(slots, seed)
    done = outcomes(tasks, backend)
    assert set(done) == set(by_name)

    def fails(name: str) -> bool:
        return name not in stored and (name in failing or any(map(fails, by_name[name].needs)))

    for name, outcome in done.items():
        task = by_name[name]
        assert (outcome.failure is not None) == fails(name)
        assert outcome.found == (name in stored)
        kept_from_it = name in stored or any(map(fails, task.needs))
        assert task.begun == (0 if kept_from_it else 1 + busy.get(name, 0))
        begins = [place for place, event in enumerate(backend.log) if event == ("begin", name)]
        for need in task.needs if begins else ():
            ends = [place for place, event in enumerate(backend.log) if event == ("end", need)]
            assert need in stored or ends[-1] < begins[0]


def test_tasks_begin_in_their_order() -> None:
    backend = RandomOrderBackend(slots=1)
    tasks = [
        MemoryTask(name="c", needs=("a",)),
        MemoryTask(name="b"),
        MemoryTask(name="a"),
        MemoryTask(name="d"),
    ]
    outcomes(tasks, backend)
    assert [name for event, name in backend.log if event == "begin"] == ["b", "a", "c", "d"]


def test_tasks_with_the_same_key_run_once() -> None:
    task, again = MemoryTask(name="a"), MemoryTask(name="a")
    assert len(outcomes([task, again], RandomOrderBackend())) == 1
    assert task.begun + again.begun == 1


def test_results_of_another_process_are_found() -> None:
    """While it was busy elsewhere; and before it was begun here."""
    busy, later = MemoryTask(name="busy", script=[Busy("in use")]), MemoryTask(name="later")

    class Other(NoProgress):
        def ended(self, done: EndedTask[Any]) -> None:
            if done.task.name == "quick":
                busy.stored = later.stored = True

    done = run_tasks([busy, MemoryTask(name="quick"), later], RandomOrderBackend(slots=1), Other())
    assert {o.task.name: o.found for o in done} == {"quick": False, "busy": True, "later": True}
    assert (busy.begun, later.begun) == (1, 0)


def test_a_failed_need_is_named() -> None:
    tasks = [
        MemoryTask(name="net", script=[ZeroDivisionError("oh")]),
        MemoryTask(name="attack", needs=("net",)),
        MemoryTask(name="figure", needs=("attack",)),
    ]
    done = outcomes(tasks, RandomOrderBackend())
    assert done["net"].failure == "ZeroDivisionError: oh"
    assert done["attack"].failure == "it needs net, which failed: ZeroDivisionError: oh"
    assert "it needs attack, which failed: it needs net" in str(done["figure"].failure)


def test_a_damaged_result_is_a_failure_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(MemoryTask):
        def finished(self) -> bool:
            raise InputError("result.json is damaged")

    done = outcomes([Damaged(name="a"), MemoryTask(name="b")], RandomOrderBackend())
    assert done["a"].failure == "result.json is damaged"
    assert done["b"].failure is None


def test_a_need_without_a_task_is_refused() -> None:
    with pytest.raises(ValueError, match="a needs x, which is not among the tasks"):
        run_tasks([MemoryTask(name="a", needs=("x",))], RandomOrderBackend())


def test_a_stop_request_ends_the_wait_for_another_process() -> None:
    looks = iter(range(100))
    task = MemoryTask(name="a", script=[Busy("in use")] * 10_000)
    with pytest.raises(Stopped, match="run the same command again"):
        run_tasks([task], RandomOrderBackend(), should_stop=lambda: next(looks) > 20)


def test_progress_receives_every_tick() -> None:
    seen = Seen()
    run_tasks([MemoryTask(name="a"), MemoryTask(name="b")], RandomOrderBackend(), seen)
    assert {name for name, _, _ in seen.ticks} == {"a", "b"}


def test_an_exception_of_a_worker_is_a_failure() -> None:
    class Broken(RandomOrderBackend):
        def submit(self, task: Task) -> "Future[TaskOutcome]":
            future: Future[TaskOutcome] = Future()
            future.set_exception(MemoryError("gone"))
            return future

    assert outcomes([MemoryTask(name="a")], Broken())["a"].failure == "MemoryError: gone"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "lokal"}, "did you mean 'local'"),
        ({"name": "local", "address": "auto"}, "--address auto is for --backend ray"),
        ({"name": "ray", "jobs": 3}, "--jobs 3 is for --backend local"),
        ({"name": "ray", "gpus_per_run": 2.0}, "use torchrun"),
        ({"name": "local", "gpus_per_run": -1.0}, "--gpus-per-run -1"),
    ],
    ids=str,
)
def test_invalid_backend_options_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_backend(**settings)


def test_a_task_whose_folder_is_deleted_says_so_instead_of_waiting_for_another_process(
    tmp_path: Path,
) -> None:
    class Deleting(MemoryTask):
        def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
            with leased(tmp_path / "run") as lease:
                shutil.rmtree(tmp_path / "run")
                lease.check()

    outcome = attempt(Deleting(name="a"), Callbacks(), lambda: False)
    assert outcome.failure is not None
    assert "is gone: it was deleted or moved" in outcome.failure
    assert not outcome.busy
