"""Freed memory is kept inside the context and returned outside it.

Measured in a process of its own: in one that has run other tests, freed pieces of their memory may serve a block.
"""

import platform
import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="page faults are counted on POSIX only")
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is asked")

COUNTING = """
import contextlib
import resource

import torch

from freeat.allocator import LARGEST_KEPT, freed_memory_kept

fresh = 2 * LARGEST_KEPT >> 21  # a system with huge pages clears 2 MiB per fault


def faults_of_a_block():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2 * LARGEST_KEPT, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

"""

KEPT = """
with freed_memory_kept():
    faults_of_a_block()
    kept = min(faults_of_a_block() for _ in range(3))
returned = min(faults_of_a_block() for _ in range(3))
assert kept < fresh <= returned, (kept, fresh, returned)
"""

STOPPED = """
with contextlib.suppress(RuntimeError), freed_memory_kept():
    faults_of_a_block()
    raise RuntimeError("stop")
returned = faults_of_a_block()
assert fresh <= returned, (fresh, returned)
"""


@pytest.mark.parametrize(
    "story", [KEPT, STOPPED], ids=["used again inside, returned outside", "an error inside"]
)
def test_freed_memory_is_kept_inside_only(story: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTING + story], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
