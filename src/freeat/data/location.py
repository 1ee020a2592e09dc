"""Where data sets live on this machine."""

import os
import sys
from pathlib import Path

VARIABLE = "FREEAT_DATA"


def data_folder(data_dir: Path | str | None = None) -> Path:
    """The folder asked for, else ``$FREEAT_DATA``, else ``freeat/data`` in the user's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    return _user_cache() / "freeat" / "data"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
