"""Models on the Hugging Face Hub: ``hf://NAME[@REVISION]``, fetched by their commit, and folders pushed as one commit.

Only the files that are asked for by name are fetched, into the Hub's own cache, and none larger than its limit. What
they hold is not trusted: it is read as any other file is.
"""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freeat.errors import InputError, need
from freeat.files.reading import check_size

log = logging.getLogger(__name__)

PREFIX = "hf://"
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
_PART = r"(?!.*(?:--|\.\.))[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[\w][\w./-]{0,200}", re.ASCII)


def is_on_hub(reference: object) -> bool:
    """Whether a reference to a model is one to the Hub."""
    return isinstance(reference, str) and reference.startswith(PREFIX)


@dataclass(frozen=True)
class HubModel:
    """A model of the Hub at one commit."""

    name: str
    commit: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}@{self.commit}"

    @classmethod
    def of(cls, reference: str) -> "HubModel":
        """The model that ``hf://NAME[@REVISION]`` means; a branch, tag or no revision is resolved to its commit."""
        name, _, revision = reference.removeprefix(PREFIX).partition("@")
        check_name(name)
        if _COMMIT.fullmatch(revision):
            return cls(name, revision)
        if revision and not _REVISION.fullmatch(revision):
            raise InputError(f"{reference}: {revision!r} is not a commit, branch or tag")
        with _hub_errors(reference) as hub:
            commit = hub.HfApi().model_info(name, revision=revision or None).sha
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise InputError(f"{reference}: the Hub does not say its commit; name it as {PREFIX}NAME@COMMIT")
        found = cls(name, commit)
        log.warning("%s may change; what is used now is %s", reference, found)
        return found

    def fetch(self, limits: Mapping[str, int]) -> Path:
        """The folder with those of the named files that the model has, each of at most its limit in bytes.

        Files that were fetched before are taken from the Hub's cache, without a network.
        """
        found = [path for name, limit in limits.items() if (path := self._file(name, limit)) is not None]
        if not found:
            raise InputError(
                f"{self} has neither of {', '.join(limits)}: nothing else is loaded from the Hub, in particular no "
                "pickles and no code; export a run with `freeat export RUN --push NAME`, or fetch a weights file "
                "yourself and write NETWORK@FILE"
            )
        return found[0].parent

    def _file(self, name: str, limit: int) -> Path | None:
        with _hub_errors(str(self)) as hub:
            cached = hub.try_to_load_from_cache(self.name, name, revision=self.commit)
            if isinstance(cached, str):
                return Path(cached)
            api = hub.HfApi()
            url = hub.hf_hub_url(self.name, name, revision=self.commit, endpoint=api.endpoint)
            try:
                size = api.get_hf_file_metadata(url=url).size
            except hub.errors.RemoteEntryNotFoundError:
                return None
            if size is None:
                raise InputError(f"{self}: the Hub does not say how large {name} is")
            check_size(f"{self}: {name}", size, limit)
            return Path(api.hf_hub_download(self.name, name, revision=self.commit))


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a model on the Hub."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not the name of a model on the Hub: write OWNER/NAME, in letters, digits, '-', '_' and '.'"
        )


def check_push(name: str, *, marker: str) -> None:
    """Refuse a push that cannot succeed: a bad name, no user logged in, or a model without ``marker`` of that name."""
    check_name(name)
    with _hub_errors(name) as hub:
        if hub.get_token() is None:
            raise InputError(f"--push {name}: no user is logged in to the Hub; {LOG_IN}")
        api = hub.HfApi()
        api.whoami()
        try:
            files = {one.rfilename for one in api.model_info(name).siblings or ()}
        except hub.errors.RepositoryNotFoundError:
            return
    if files - {".gitattributes"} and marker not in files:
        raise InputError(
            f"--push {name}: it is on the Hub already and was not pushed by freeat (it has no {marker}): choose "
            "another name; nothing was touched"
        )


def push(folder: Path, name: str, *, replaced: Sequence[str], private: bool = False) -> HubModel:
    """Push the files of a folder as one commit, with which earlier files of the names ``replaced`` end."""
    with _hub_errors(name) as hub:
        api = hub.HfApi()
        api.create_repo(name, private=private or None, exist_ok=True)
        done = api.upload_folder(
            repo_id=name,
            folder_path=str(folder),
            allow_patterns=[path.name for path in folder.iterdir() if path.is_file()],
            delete_patterns=list(replaced),
            commit_message=f"freeat export: {folder.name}",
        )
    return HubModel(name, done.oid)


@contextmanager
def _hub_errors(what: str) -> Iterator[Any]:
    """The package huggingface_hub; whatever it raises inside becomes an InputError about ``what``, with the remedy."""
    hub: Any = need("huggingface_hub", extra="hub", what=f"{what} (the Hugging Face Hub)")
    need("huggingface_hub.errors", extra="hub", what=what)
    known = hub.errors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the package about its own internals
            yield hub
    except InputError:
        raise
    except known.GatedRepoError:
        raise InputError(
            f"{what}: its owner grants access on its page on the Hub; ask there, then {LOG_IN}"
        ) from None
    except known.RepositoryNotFoundError:
        raise InputError(
            f"{what}: the Hub has no such model, or it is private: check the name, or {LOG_IN}"
        ) from None
    except known.RevisionNotFoundError:
        raise InputError(f"{what}: the model has no such commit, branch or tag on the Hub") from None
    except known.HfHubHTTPError as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        remedy = f"; its token may not do this: {LOG_IN}" if code in (401, 403) else ""
        raise InputError(f"{what}: the Hub refuses ({_reason(error)}){remedy}") from None
    except (known.EntryNotFoundError, OSError) as error:
        raise InputError(f"{what}: the Hub cannot be reached ({_reason(error)}); {_OFFLINE}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise InputError(f"{what}: the Hub cannot be reached ({_reason(error)}); {_OFFLINE}") from None
        raise InputError(f"{what}: the Hub's answer cannot be used ({_reason(error)})") from None


_OFFLINE = f"what was fetched before is found without a network by its commit, {PREFIX}NAME@COMMIT"


def _reason(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
