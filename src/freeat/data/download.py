"""One file from its address: resumed where it broke, verified, put in place in one step."""

import http.client
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from freeat.data.checksums import verify
from freeat.errors import InputError

Progress = Callable[[str, int, int | None], None]
"""Called with what is fetched, the bytes so far, and their total where it is known."""

TIMEOUT = 10.0
ATTEMPTS = 5
BLOCK = 1 << 18
LARGEST = 2 << 30
BROKEN = (OSError, http.client.HTTPException)

log = logging.getLogger(__name__)


class SourceFailed(Exception):
    """A source of a data set that could not deliver it; the next one is tried."""


def download(url: str, path: Path, md5: str, progress: Progress) -> None:
    """Fetch ``url`` to ``path``. A broken transfer leaves ``path.part``, from which the next one goes on."""
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
            return  # nothing is left to fetch; the checksum tells whether the file is whole
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
