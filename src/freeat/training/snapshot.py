"""The whole state of a learner as named tensors and plain values, so that it can be stored without pickles."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from freeat.compute import Cost
from freeat.errors import InputError
from freeat.learner import Learner

Tensors = dict[str, Tensor]
Slots = dict[str, Any]  # the state of torch's optimizers and scalers


@dataclass(frozen=True, kw_only=True)
class LearnerState:
    """The state of a learner besides its tensors."""

    updates: int
    batches: int
    averaged: dict[str, int]
    cost: Cost
    optimizer_groups: list[Slots]
    optimizer_scalars: dict[str, Slots]
    precision: Slots


def take_snapshot(learner: Learner) -> tuple[Tensors, LearnerState]:
    """Everything that the next update depends on."""
    tensors = {f"model.{name}": value for name, value in learner.model.state_dict().items()}
    for kind, average in learner.averages.items():
        tensors |= {f"{kind}.{name}": value for name, value in average.model.state_dict().items()}
    if learner.carried is not None:
        tensors["carried"] = learner.carried
    optimizer = learner.optimizer.state_dict()
    scalars: dict[str, Slots] = {}
    for slot, values in optimizer["state"].items():
        for name, value in values.items():
            if torch.is_tensor(value):
                tensors[f"optimizer.{slot}.{name}"] = value
            else:
                scalars.setdefault(str(slot), {})[name] = value
    return tensors, LearnerState(
        updates=learner.updates,
        batches=learner.batches,
        averaged={name: average.count for name, average in learner.averages.items()},
        cost=replace(learner.cost),
        optimizer_groups=optimizer["param_groups"],
        optimizer_scalars=scalars,
        precision=learner.precision.state_dict(),
    )


def restore_snapshot(learner: Learner, tensors: Tensors, state: LearnerState) -> None:
    """Restore the learner to a snapshot; the next update then has the same bits."""
    device = next(learner.model.parameters()).device
    learner.model.load_state_dict(_under(tensors, "model."))
    for kind, average in learner.averages.items():
        average.model.load_state_dict(_under(tensors, f"{kind}."))
        average.count = state.averaged[kind]
    learner.carried = tensors["carried"].to(device) if "carried" in tensors else None
    learner.optimizer.load_state_dict(_optimizer_state(learner, tensors, state))
    learner.updates, learner.batches = state.updates, state.batches
    # The main process holds the cost of all, so that their sum stays right.
    learner.cost = replace(state.cost) if learner.processes.is_main else Cost()
    learner.precision.load_state_dict(state.precision)


def _optimizer_state(learner: Learner, tensors: Tensors, stored: LearnerState) -> Slots:
    parameters = [p for group in learner.optimizer.param_groups for p in group["params"]]
    state: dict[int, Slots] = {int(slot): dict(values) for slot, values in stored.optimizer_scalars.items()}
    for name, value in _under(tensors, "optimizer.").items():
        slot, key = name.split(".", 1)
        like = parameters[int(slot)]
        # A momentum lies in memory as its parameter does (channels_last), or every later step pays for it.
        laid_out = torch.empty_like(like).copy_(value) if value.shape == like.shape else value.clone()
        state.setdefault(int(slot), {})[key] = laid_out
    groups = [dict(group) for group in stored.optimizer_groups]
    for group, current in zip(groups, learner.optimizer.param_groups, strict=True):
        for key, value in group.items():
            if isinstance(current.get(key), tuple):
                group[key] = tuple(value)
    return {"state": state, "param_groups": groups}


def _under(tensors: Tensors, prefix: str) -> Tensors:
    found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if not found and prefix == "model.":
        raise InputError("the checkpoint holds no model")
    return found
