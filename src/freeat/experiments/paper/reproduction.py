"""A reproduction from beginning to end: what was asked for, planned, carried out, and gathered."""

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from freeat.compute.machine import provenance, resolve_device
from freeat.data import load
from freeat.data.catalogue import available
from freeat.data.sources import SOURCES, data_folder, find_source
from freeat.data.synthetic import write_miniatures
from freeat.errors import InputError, unknown_name
from freeat.experiments.paper.catalogue import experiments, names_of
from freeat.experiments.paper.clock import Stopwatch
from freeat.experiments.paper.costing import Estimator
from freeat.experiments.paper.experiment import Experiment, Piece
from freeat.experiments.paper.gather import gather
from freeat.experiments.paper.outlook import Outlook
from freeat.experiments.paper.plan_file import plan_path, plans_sharing, settled_plan, stored_plan
from freeat.experiments.paper.planner import LeftOut, Plan, Wish, fit, wishes
from freeat.experiments.paper.scales import Scale
from freeat.experiments.paper.sessions import Session, taken
from freeat.experiments.tasks import Site, Training
from freeat.runs.reading import damage, found_result
from freeat.tasks import Backend, Done, Progress, run_tasks
from freeat.tasks.local import room_for

MINIATURE_IMAGES = 32
"""In each split of the miniature data sets: more than any run at that scale asks for."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Tables and figures at a scale, from the data sets that are here.

    ``missing`` are the parts of them on data sets that are not, where their cost would only be added.
    """

    scale: Scale
    site: Site
    experiments: tuple[Experiment, ...]
    absent: tuple[LeftOut, ...]
    missing: tuple[Experiment, ...] = ()
    workers: int

    @cached_property
    def wishes(self) -> list[Wish]:
        return wishes(self.experiments)

    @property
    def plan_path(self) -> Path:
        return plan_path(self.site.store, self.scale.name, self.wishes)

    def check_data(self) -> None:
        """Refuse other data than the runs in the store were begun with: nothing there could be reused or continued."""
        runs = [wish.task for wish in self.wishes if isinstance(wish.task, Training)]
        begun = [(run, digest) for run in runs if (digest := run.data_digest) is not None]
        for name in dict.fromkeys(run.spec.data for run, _ in begun):
            now = load(name, data_dir=self.site.data_dir).digest
            for run, before in begun:
                if run.spec.data == name and before != now:
                    raise InputError(
                        f"{name} is not what {run.name} in {run.folder.path} was begun with "
                        f"({before[:12]} → {now[:12]}): restore the data, or choose another --store"
                    )

    def make_plan(self) -> tuple[Plan, dict[str, Any]]:
        """The plan as this machine's speed suggests it, and what was measured for it. Writes nothing."""
        with self._estimator() as estimator:
            plan = fit(self.wishes, estimator, budget=self.scale.budget, workers=self.workers)
        return plan, {"scale": self.scale.name, "machine": estimator.document()}

    def plan(self) -> Plan:
        """The plan in the store, made now if there is none."""
        return settled_plan(self.plan_path, self.make_plan)

    def begun_plan(self) -> Plan:
        """The plan in the store, which must be there."""
        plan = stored_plan(self.plan_path)
        if plan is None:
            raise InputError(
                f"nothing of this was begun in {self.site.store}: give the names, --scale, --data and --store "
                "of the command that is at it"
            )
        return plan

    def outlook(self) -> Outlook:
        """The plan in the store, or the one that would be made, and what absent data sets would add. Writes nothing."""
        plan = stored_plan(self.plan_path) or self.make_plan()[0]
        with self._estimator() as estimator:
            absent = fit(wishes(self.missing), estimator, budget=None, workers=self.workers)
        return Outlook(plan=plan, finished=self.finished(plan), absent=absent.items)

    @contextmanager
    def _estimator(self) -> Iterator[Estimator]:
        # a cluster has more workers than this machine can time
        at_once = min(self.workers, room_for(self.scale.threads))
        with Stopwatch(workers=at_once, device=self.site.device) as stopwatch:
            yield Estimator(site=self.site, stopwatch=stopwatch)

    def tasks(self, plan: Plan) -> list[Piece]:
        """The tasks of a plan in its order."""
        known = {wish.task.key: wish.task for wish in self.wishes}
        return [known[item.key] for item in plan.items]

    def finished(self, plan: Plan) -> frozenset[str]:
        """Keys of the tasks of a plan that are in the store."""
        return frozenset(task.key for task in self.tasks(plan) if found_result(task) is not None)

    def begin(self) -> Session:
        """A session of this process, whose time counts from now on."""
        return Session.of(self.plan_path, shlex.join(["freeat", *sys.argv[1:]]))

    def taken(self) -> float:
        """Seconds that all sessions at these tasks have taken so far."""
        return taken(plans_sharing(self.plan_path))

    def run(
        self,
        plan: Plan,
        backend: Backend,
        session: Session,
        progress: Progress,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> "list[Done[Piece]]":
        """Run the tasks that are not finished; returns all as they ended."""

        class Counted:
            """Writes down after each task that it was run in this session."""

            def tick(self, name: str, done: int, total: int) -> None:
                progress.tick(name, done, total)

            def ended(self, done: Done[Any]) -> None:
                if not done.found:
                    session.carried_out()
                progress.ended(done)

        return run_tasks(self.tasks(plan), backend, Counted(), should_stop=should_stop)

    def document(self, plan: Plan, done: Sequence["Done[Piece]"]) -> dict[str, Any]:
        """All that came out, with the published numbers and where everything comes from.

        What is planned and has neither a result nor a failure is left out so far.
        """
        gathered = gather(self.experiments, estimated={item.key: item.seconds for item in plan.items})
        failed = {one.task.key: one.failure for one in done if one.failure is not None}
        damaged = {task.key: why for task in self.tasks(plan) if (why := damage(task)) is not None}
        reasons = damaged | failed
        ended = self.finished(plan) | {one.task.key for one in done} | set(damaged)
        waiting = [task.name for task in self.tasks(plan) if task.key not in ended]
        unfinished = [LeftOut(what=name, reason="not finished yet") for name in waiting]
        return {
            "scale": self.scale.name,
            **gathered,
            "seconds": {
                "estimated": plan.seconds,
                "taken": self.taken(),
                "budget": plan.budget,
            },
            "left_out": [asdict(one) for one in (*self.absent, *plan.left_out, *unfinished)],
            "failures": [
                {"task": task.name, "reason": reasons[task.key]}
                for task in self.tasks(plan)
                if task.key in reasons
            ],
            **provenance(resolve_device(self.site.device)),
        }


def prepare(
    names: Iterable[str],
    scale: Scale,
    site: Site,
    *,
    data: Iterable[str] | None = None,
    workers: int = 1,
    dry: bool = False,
) -> Reproduction:
    """What ``names`` ask for at a scale, of the data sets asked for (None: all four) that are here.

    ``workers``: how many tasks run at a time, which decides what fits a budget. ``dry``: it is only looked at, so that
    no data set need be here.
    """
    if scale.miniature:
        write_miniatures(data_folder(site.data_dir), MINIATURE_IMAGES)
    asked = [_data_name(name, scale) for name in data] if data is not None else list(scale.setups)
    absent = [] if scale.miniature else [one for name in asked for one in _absent(name, scale, site)]
    elsewhere = {one.what for one in absent}
    wanted = names_of(names)
    made = experiments(wanted, scale, site, [name for name in asked if name not in elsewhere])
    missing = experiments(wanted, scale, site, elsewhere) if scale.budget is None else []
    if not made and not (dry and missing):
        reasons = "; ".join(f"{one.what}: {one.reason}" for one in absent) or "they use other data sets"
        raise InputError(f"nothing of what was asked for can be reproduced here ({reasons})")
    return Reproduction(
        scale=scale,
        site=site,
        experiments=tuple(made),
        absent=tuple(absent),
        missing=tuple(missing),
        workers=workers,
    )


def _data_name(name: str, scale: Scale) -> str:
    source = find_source(name)
    if source is None or source.name not in scale.setups:
        raise unknown_name("data set of the paper", name, scale.setups)
    return source.name


def _absent(name: str, scale: Scale, site: Site) -> Iterator[LeftOut]:
    """Why a data set cannot be used."""
    entry = next(entry for entry in available(site.data_dir) if entry.name == name)
    fetch = f"run `freeat data fetch {name}`, or name the folder that has it with --data-dir"
    needed = scale.setups[name].n or SOURCES[name].n_train
    if not entry.present:
        yield LeftOut(what=name, reason=f"{entry.title} is not here: {fetch}")
    elif scale.published_only and entry.state != "published":
        reason = f"only a file that stands in for {entry.title} is here, which is not the paper's: {fetch}"
        yield LeftOut(what=name, reason=reason)
    elif entry.n_train < needed:
        yield LeftOut(what=name, reason=f"{needed} training images are needed, {entry.n_train} are here")
