"""A server on 127.0.0.1 with as much of the Hugging Face Hub's API as a push and a pull of a model take.

Repositories, commits and large files live in memory. Large files are uploaded by git-lfs' batch API and downloaded by a
redirect, as from the Hub. ``requests`` lists what was asked for.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN, OWNER = "hf_right", "me"
LARGE = (".safetensors", ".onnx", ".bin")


@dataclass
class Repository:
    """Commits, oldest first: each an id and the content of files by name."""

    private: bool = False
    gated: bool = False
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)

    def commit(self, files: dict[str, bytes]) -> str:
        oid = hashlib.sha1(repr((len(self.commits), sorted(files.items()))).encode()).hexdigest()
        self.commits.append((oid, files))
        return oid

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        if revision == "main":
            return self.commits[-1]
        return next((one for one in self.commits if one[0] == revision), None)


class Hub(ThreadingHTTPServer):
    """The server with all that it stores."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.claimed_sizes: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, name: str, files: dict[str, bytes], **facts: bool) -> str:
        """Put a repository there without a push; its commit."""
        repository = self.repositories.setdefault(name, Repository(**facts))
        return repository.commit(files)


@contextmanager
def serving() -> Iterator[Hub]:
    """The server, answering in a thread of its own."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is written to stderr."""

    def _answer(self, status: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, {"error": code}, X_Error_Code=code)

    @property
    def _authorized(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _do(self) -> None:
        path, body = unquote(urlsplit(self.path).path), self._body()
        self.server.requests.append(f"{self.command} {path}")
        for pattern, method in _ROUTES:
            if found := re.fullmatch(pattern, f"{self.command} {path}"):
                return method(self, body, *found.groups())
        return self._refuse(404, "NoRoute")

    do_GET = do_POST = do_PUT = do_HEAD = _do

    def _repository(self, name: str) -> Repository | None:
        """The repository, if it is there and may be seen; otherwise the refusal is sent."""
        repository = self.server.repositories.get(name)
        if repository is None or (repository.private and not self._authorized):
            self._refuse(404 if self._authorized else 401, "RepoNotFound")
            return None
        if repository.gated:
            self._refuse(403, "GatedRepo")
            return None
        return repository

    def whoami(self, body: bytes) -> None:
        if not self._authorized:
            return self._refuse(401, "Unauthorized")
        return self._answer(200, {"type": "user", "name": OWNER, "orgs": [], "auth": {}})

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        if not self._authorized or asked["organization"] not in (None, OWNER):
            return self._refuse(403 if self._authorized else 401, "Forbidden")
        name = f"{OWNER}/{asked['name']}"
        url = {"url": f"{self.server.url}/{name}", "name": name}
        if name in self.server.repositories:
            return self._answer(409, url)
        private = bool(asked.get("private")) or asked.get("visibility") == "private"
        self.server.add(name, {".gitattributes": b"*.safetensors filter=lfs\n"}, private=private)
        return self._answer(200, url)

    def validate(self, body: bytes) -> None:
        self._answer(200, {"errors": [], "warnings": []})

    def info(self, body: bytes, name: str, revision: str | None = None) -> None:
        if (repository := self._repository(name)) is None:
            return None
        if (found := repository.at(revision or "main")) is None:
            return self._refuse(404, "RevisionNotFound")
        facts = {
            "id": name,
            "modelId": name,
            "private": repository.private,
            "tags": [],
            "downloads": 0,
            "likes": 0,
        }
        siblings = [{"rfilename": path} for path in found[1]]
        return self._answer(200, {**facts, "sha": found[0], "siblings": siblings})

    def tree(self, body: bytes, name: str, revision: str) -> None:
        if (repository := self._repository(name)) is None:
            return None
        found = repository.at(revision)
        assert found is not None
        return self._answer(
            200,
            [
                {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for path, content in found[1].items()
            ],
        )

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self._answer(200, {"files": files})

    def batch(self, body: bytes, name: str) -> None:
        def action(one: dict[str, Any]) -> dict[str, Any]:
            if one["oid"] in self.server.large:
                return one
            actions = {"upload": {"href": f"{self.server.url}/lfs/{one['oid']}"}}
            actions["verify"] = {"href": f"{self.server.url}/lfs-verify"}
            return {**one, "actions": actions}

        if not self._authorized:
            return self._refuse(401, "Unauthorized")
        return self._answer(
            200, {"transfer": "basic", "objects": [action(one) for one in json.loads(body)["objects"]]}
        )

    def upload(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            return self._refuse(400, "WrongDigest")
        self.server.large[oid] = body
        return self._answer(200)

    def verify(self, body: bytes) -> None:
        asked = json.loads(body)
        right = len(self.server.large.get(asked["oid"], b"")) == asked["size"]
        self._answer(200 if right else 400)

    def commit(self, body: bytes, name: str, revision: str) -> None:
        if not self._authorized:
            return self._refuse(401, "Unauthorized")
        if (repository := self._repository(name)) is None:
            return None
        files = dict(repository.commits[-1][1])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            match line["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.server.large[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        oid = repository.commit(files)
        url = f"{self.server.url}/{name}/commit/{oid}"
        return self._answer(200, {"success": True, "commitOid": oid, "commitUrl": url})

    def resolve(self, body: bytes, name: str, revision: str, path: str) -> None:
        if (repository := self._repository(name)) is None:
            return None
        if (found := repository.at(revision)) is None:
            return self._refuse(404, "RevisionNotFound")
        oid, files = found
        if path not in files:
            return self._refuse(404, "EntryNotFound")
        digest = hashlib.sha256(files[path]).hexdigest()
        size = str(self.server.claimed_sizes.get(path, len(files[path])))
        if not path.endswith(LARGE):
            return self._answer(200, files[path], X_Repo_Commit=oid, ETag=f'"{digest}"', Content_Length=size)
        self.server.large[digest] = files[path]
        return self._answer(
            302,
            X_Repo_Commit=oid,
            X_Linked_Etag=f'"{digest}"',
            X_Linked_Size=size,
            Location=f"http://localhost:{self.server.server_port}/cdn/{digest}",  # another host, as of the Hub
        )

    def download(self, body: bytes, oid: str) -> None:
        self._answer(200, self.server.large[oid], ETag=f'"{oid}"')


_REPO = r"([^/]+/[^/]+)"
_ROUTES = [
    (r"GET /api/whoami-v2", _Handler.whoami),
    (r"POST /api/repos/create", _Handler.create),
    (r"POST /api/validate-yaml", _Handler.validate),
    (rf"GET /api/models/{_REPO}", _Handler.info),
    (rf"GET /api/models/{_REPO}/revision/(.+)", _Handler.info),
    (rf"GET /api/models/{_REPO}/tree/(.+)", _Handler.tree),
    (rf"POST /api/models/{_REPO}/preupload/(.+)", _Handler.preupload),
    (rf"POST /api/models/{_REPO}/commit/(.+)", _Handler.commit),
    (rf"POST /{_REPO}\.git/info/lfs/objects/batch", _Handler.batch),
    (r"PUT /lfs/([0-9a-f]{64})", _Handler.upload),
    (r"POST /lfs-verify", _Handler.verify),
    (r"(?:GET|HEAD) /cdn/([0-9a-f]{64})", _Handler.download),
    (rf"(?:GET|HEAD) /{_REPO}/resolve/([^/]+)/(.+)", _Handler.resolve),
]
