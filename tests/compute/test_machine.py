"""The machine's settings inside a run, and the process's own outside it."""

import platform
from pathlib import Path
from typing import Any

import pytest
import torch

from freeat.compute.machine import (
    LARGEST_KEPT,
    arithmetic,
    compiled,
    freed_memory_kept,
    provenance,
    uncompiled,
)

settings: Any = torch.utils.deterministic

# a system with huge pages clears 2 MiB per fault
FAULTS_OF_FRESH_MEMORY = 2 * LARGEST_KEPT >> 21
only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's allocator")


def _fail_inside() -> None:
    with arithmetic(threads=torch.get_num_threads(), deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not settings.fill_uninitialized_memory
        raise RuntimeError("stop")


@pytest.mark.parametrize("before", [True, False])
def test_new_memory_is_left_unfilled_inside_only(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "fill_uninitialized_memory", before)
    with pytest.raises(RuntimeError, match="stop"):
        _fail_inside()
    assert settings.fill_uninitialized_memory is before


@pytest.mark.filterwarnings("ignore")  # the compiler warns about its own doings
def test_compiled_networks_are_as_deterministic_as_the_arithmetic() -> None:
    import torch._inductor.config as compiler

    for deterministic in (True, False):
        with arithmetic(threads=torch.get_num_threads(), deterministic=deterministic):
            compiled(torch.nn.Linear(2, 2))
            assert compiler.deterministic is deterministic
            assert torch.are_deterministic_algorithms_enabled() is deterministic
        assert compiler.deterministic is torch.are_deterministic_algorithms_enabled() is False


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 2e-4}),
        (torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
    ],
)
def test_an_uncompiled_optimizer_takes_the_same_steps(
    kind: type[torch.optim.Optimizer], settings: dict[str, float]
) -> None:
    found = []
    for optimizer_class in (kind, uncompiled(kind)):
        w = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        optimizer = optimizer_class([w], **settings)
        for k in range(4):
            optimizer.zero_grad()
            (w * w.detach().cos() * k).sum().backward()
            optimizer.step()
            again = optimizer_class([w], **settings)
            again.load_state_dict(optimizer.state_dict())
            optimizer = again
        found.append(w.detach())
    assert torch.equal(*found)
    assert isinstance(optimizer, kind)
    assert type(optimizer).__name__ == kind.__name__


def _faults_of_a_block() -> int:
    resource = pytest.importorskip("resource", reason="page faults are counted on POSIX only")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2 * LARGEST_KEPT, dtype=torch.uint8)
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@only_glibc
def test_a_freed_block_is_used_again_inside_and_returned_outside() -> None:
    with freed_memory_kept():
        _faults_of_a_block()
        kept = min(_faults_of_a_block() for _ in range(3))
    returned = _faults_of_a_block()  # the first: later ones may find the room in the heap that it left
    assert kept < FAULTS_OF_FRESH_MEMORY <= returned


@only_glibc
def test_an_error_inside_still_returns_the_memory() -> None:
    with pytest.raises(RuntimeError, match="stop"), freed_memory_kept():
        raise RuntimeError("stop")
    assert _faults_of_a_block() >= FAULTS_OF_FRESH_MEMORY


def test_the_commit_of_a_source_tree_is_recorded() -> None:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        pytest.skip("not a working tree of git")
    assert provenance(torch.device("cpu")).commit
