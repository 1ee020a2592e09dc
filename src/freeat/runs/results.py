"""Finished pieces of a campaign, one JSON file each, so that an interrupted one goes on where it stopped."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freeat.errors import InputError
from freeat.files.documents import read_json, to_json, write_json

log = logging.getLogger(__name__)

FORMAT = 1
SEMANTICS = 2
"""Raised whenever the same cell would be measured otherwise."""


@dataclass(frozen=True)
class Cells:
    """The cells in a folder (None: nothing is stored), each found by what it was measured on and how."""

    folder: Path | None

    def find(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """The stored result of exactly this measurement, if there is one."""
        path = self._path(identity)
        return read_json(path, format=FORMAT) if path is not None and path.is_file() else None

    def store(self, identity: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
        """Publish a result under its identity, atomically; returns the document as it would be found again."""
        document = {"identity": {"semantics": SEMANTICS, **identity}, **result}
        path = self._path(identity)
        if path is not None:
            write_json(path, document, format=FORMAT)
        found: dict[str, Any] = json.loads(to_json({"format": FORMAT, **document}))
        return found

    def matching(self, **part: Any) -> Iterator[dict[str, Any]]:
        """The stored results whose identity has this part."""
        wanted = {"semantics": SEMANTICS, **part}
        for path in sorted((self.folder / "cells").glob("*.json")) if self.folder is not None else ():
            try:
                found = read_json(path, format=FORMAT)
            except InputError as error:
                log.warning("left out: %s", error)
                continue
            if wanted.items() <= found.get("identity", {}).items():
                yield found

    def parts(self, identity: Mapping[str, Any]) -> Path | None:
        """The folder for what is finished of a cell that is not, beside where the cell will be."""
        path = self._path(identity)
        return None if path is None else path.with_suffix(".parts")

    def _path(self, identity: Mapping[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / "cells" / f"{cell_name({'semantics': SEMANTICS, **identity})}.json"


def cell_name(identity: Mapping[str, Any]) -> str:
    """What the files of a cell are called, by its whole identity."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]
