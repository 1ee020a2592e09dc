"""Finished pieces of a campaign, one JSON file each, so that an interrupted one goes on where it stopped."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freeat.files import read_json, write_json

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
        """Publish a result under its identity, atomically; returns the document."""
        document = {"identity": {"semantics": SEMANTICS, **identity}, **result}
        path = self._path(identity)
        if path is not None:
            write_json(path, document, format=FORMAT)
        return {"format": FORMAT, **document}

    def _path(self, identity: Mapping[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        text = json.dumps({"semantics": SEMANTICS, **identity}, sort_keys=True)
        return self.folder / "cells" / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"
