"""The machine's settings inside a run, and the process's own outside it."""

import platform
from pathlib import Path
from typing import Any

import pytest
import torch

from freeat.compute.machine import LARGEST_KEPT, arithmetic, freed_memory_kept, provenance

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
