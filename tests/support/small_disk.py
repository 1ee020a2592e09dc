"""A disk that is full: a small tmpfs where one can be mounted, and a limit on the size of files elsewhere."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SIZE = 8 << 20


@dataclass(frozen=True)
class SmallDisk:
    """A folder, and whether it is a file system of its own."""

    path: Path
    mounted: bool

    @contextmanager
    def full(self, room: int) -> Iterator[None]:
        """Inside, ``room`` bytes are free on the disk, or a file has at most that size."""
        if self.mounted:
            ballast = self.path / "ballast"
            ballast.write_bytes(bytes(max(0, shutil.disk_usage(self.path).free - room)))
            try:
                yield
            finally:
                ballast.unlink()
            return
        import resource  # not on Windows

        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_tmpfs(path: Path) -> Iterator[SmallDisk]:
    """A tmpfs mounted at a folder; the test is skipped where that is not allowed."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root mounts a tmpfs")
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield SmallDisk(path, mounted=True)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
