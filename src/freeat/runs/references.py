"""References to models, as people write them.

::

    reference  =  run-folder [ "@" weights ]          e.g. runs/free-4, runs/free-4@ema, runs/free-4@best
                  | exported-folder                   e.g. exports/free-4
                  | network "@" weights-file          e.g. resnet18@robust.safetensors
                  | package.module:factory "@" weights-file
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from freeat.models.imported import is_import_path
from freeat.runs.exported import Bundle
from freeat.runs.folder import RunFolder


@dataclass(frozen=True)
class Reference:
    """Where a model is, or what it is made by, and which weights it has."""

    where: str
    weights: str = ""

    @classmethod
    def of(cls, text: str | Path) -> Self:
        """The reference that ``text`` means. The path of a folder that is there may contain an "@" itself."""
        text = str(text)
        ends = (len(text), *(at for at in reversed(range(len(text))) if text[at] == "@"))
        for end in ends:
            if _stored_at(text[:end]) is not None:
                return cls(text[:end], text[end + 1 :])
        where, _, weights = text.partition("@")
        return cls(where, weights)

    @property
    def folder(self) -> RunFolder | Bundle | None:
        """The run or exported folder it points to, if it is there."""
        return _stored_at(self.where)

    @property
    def names_code(self) -> bool:
        """Whether it names a factory itself, rather than a folder that may name one."""
        return self.folder is None and is_import_path(self.where)


def _stored_at(where: str) -> RunFolder | Bundle | None:
    folders = (RunFolder(Path(where)), Bundle(Path(where)))
    return next((folder for folder in folders if folder.exists), None)
