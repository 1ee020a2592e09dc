"""Freed memory is kept inside the context and returned outside it."""

import platform

import pytest
import torch

from freeat.compute.allocator import LARGEST_KEPT, freed_memory_kept

resource = pytest.importorskip("resource", reason="page faults are counted on POSIX only")
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is asked")

# a system with huge pages clears 2 MiB per fault
FAULTS_OF_FRESH_MEMORY = 2 * LARGEST_KEPT >> 21


def _faults_of_a_block() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2 * LARGEST_KEPT, dtype=torch.uint8)
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def test_a_freed_block_is_used_again_inside_and_returned_outside() -> None:
    with freed_memory_kept():
        _faults_of_a_block()
        kept = min(_faults_of_a_block() for _ in range(3))
    returned = _faults_of_a_block()  # the first: later ones may find the room in the heap that it left
    assert kept < FAULTS_OF_FRESH_MEMORY <= returned


def test_an_error_inside_still_returns_the_memory() -> None:
    with pytest.raises(RuntimeError, match="stop"), freed_memory_kept():
        raise RuntimeError("stop")
    assert _faults_of_a_block() >= FAULTS_OF_FRESH_MEMORY
