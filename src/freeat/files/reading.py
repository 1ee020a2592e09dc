"""Files that are not trusted, read within limits: whatever is wrong with one becomes an InputError with its name.

Only regular files are opened. Their size, how far they expand, how deep they nest and how many items they hold are
limited, and a message names the limit. Every reader of the package opens its files here.
"""

import gzip
import io
import json
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freeat.errors import InputError, is_text

if TYPE_CHECKING:
    import yaml
    from _typeshed import WriteableBuffer

LARGEST_DOCUMENT = 64 << 20
"""Bytes of a JSON document."""
LARGEST_SETTINGS = 1 << 20
"""Bytes of a YAML file."""
LARGEST_FILE = 1 << 30
"""Bytes of a file or member that is read whole."""
LARGEST_OLD_WEIGHTS = 1 << 32
"""Bytes of a file of weights in the format before PyTorch 1.6, which is read whole; others are mapped into memory."""
DEEPEST = 100
"""Levels of lists and mappings in a document."""
MOST_ITEMS = 10_000
"""Values in a YAML file, those that aliases repeat counted each time."""
MOST_MEMBERS = 1_000_000
"""Files in an archive."""
FREE_EXPANSION = 1 << 28
"""Bytes that a compressed file may expand to, however small it is."""
LARGEST_RATIO = 200
"""How many times its own size a compressed file may expand to beyond that."""
BLOCK = 1 << 20

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


@contextmanager
def refusing(what: Path | str, kind: str, remedy: str = "") -> Iterator[None]:
    """Inside, a decoder reads unchecked bytes: whatever it raises means that they are damaged.

    Decoders raise many kinds of exceptions on damaged bytes, and not always the same in the next version.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{what}: cannot be read ({error.strerror or error}){_then(remedy)}") from None
    except RecursionError:
        raise InputError(f"{what}: not a readable {kind} (nested too deep){_then(remedy)}") from None
    except MemoryError:
        raise InputError(
            f"{what}: not a readable {kind} (it claims too much memory){_then(remedy)}"
        ) from None
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        raise InputError(f"{what}: not a readable {kind} ({reason}){_then(remedy)}") from None


def _then(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def check_regular(path: Path) -> os.stat_result:
    """Refuse what is not a regular file: reading a pipe or a device may never end."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"cannot read {path}: no such file") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError:  # a zero byte in the name
        raise InputError(f"{str(path)!r} is not the name of a file") from None
    _check_kind(path, status)
    return status


def _check_kind(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        found = next((name for is_kind, name in KINDS if is_kind(status.st_mode)), "no file")
        raise InputError(f"cannot read {path}: it is {found}, and only regular files are read")


def open_file(path: Path, *, limit: int | None = None) -> BufferedReader:
    """A regular file of at most ``limit`` bytes, opened for reading."""
    check_regular(path)
    try:
        # The name may mean a pipe by now: without O_NONBLOCK opening it would wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    file = os.fdopen(handle, "rb")
    try:
        status = os.fstat(handle)
        _check_kind(path, status)
        check_size(path, status.st_size, limit)
    except InputError:
        file.close()
        raise
    return file


def check_size(what: Path | str, size: int, limit: int | None) -> None:
    """Refuse a file that is larger than anything of its kind."""
    if limit is not None and size > limit:
        raise InputError(f"{what} has {size} bytes, and at most {limit} are read")


def read_bytes(path: Path, *, limit: int = LARGEST_FILE) -> bytes:
    """The content of a regular file of at most ``limit`` bytes."""
    with open_file(path, limit=limit) as file, refusing(path, "file"):
        return file.read(limit)


class FileSection(io.RawIOBase):
    """``size`` bytes of an open file from ``begin`` on, as a file that ends there, whatever is appended meanwhile."""

    def __init__(self, file: BufferedReader, begin: int, size: int) -> None:
        self._file, self._begin, self._size, self._place = file.raw, begin, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        if place < 0:
            raise ValueError(f"a place {place} before the beginning")
        self._place = place
        return place

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)
        self._file.seek(self._begin + self._place, os.SEEK_SET)
        count = self._file.readinto(view[: max(0, self._size - self._place)]) or 0
        self._place += count
        return count


@contextmanager
def opened_section(
    path: Path, begin: int = 0, size: int | None = None, *, limit: int | None = None
) -> Iterator[BufferedReader]:
    """Bytes of a regular file of at most ``limit``, by default all that it has now; those asked for are read.

    Whoever reads them turns what goes wrong into an InputError.
    """
    with open_file(path, limit=limit) as file:
        size = os.fstat(file.fileno()).st_size if size is None else size
        yield BufferedReader(FileSection(file, begin, size))


def read_text(path: Path, *, limit: int = LARGEST_DOCUMENT, wrong: str = "is damaged") -> str:
    """The UTF-8 text of a regular file of at most ``limit`` bytes."""
    data = read_bytes(path, limit=limit)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path} {wrong}, line {line}: no UTF-8 text; save it as UTF-8") from None


def parse_json(text: str | bytes, where: Path | str) -> Any:
    """The values of a JSON text, nested at most ``DEEPEST`` deep."""
    try:
        value = json.loads(text)
        check_depth(value)
        check_text(text, value)
    except RecursionError:
        raise InputError(f"{where} is damaged: nested more than {DEEPEST} deep") from None
    except ValueError as error:
        raise InputError(f"{where} is damaged: {error}") from None
    return value


_HALVES = re.compile(r"\\(?:u|U0000)[dD][89a-fA-F]")


def check_text(text: str | bytes, value: Any) -> None:
    """Raise ValueError where an escape in the text is half a character, with which nothing can be written."""
    text = text if isinstance(text, str) else text.decode()
    if _HALVES.search(text) and not is_text(json.dumps(value, ensure_ascii=False, default=str)):
        raise ValueError("half of a character (\\ud800 to \\udfff)")


def check_depth(value: Any) -> None:
    """Raise RecursionError where lists and dictionaries nest more than ``DEEPEST`` deep."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def parse_yaml(text: str, where: Path | str) -> "tuple[yaml.Node | None, Any]":
    """The nodes of a YAML document and its values; ``YAMLError`` is left to the caller, who names the line.

    Plain data only. Aliases count as what they repeat, so that a few lines cannot mean a thousand million values.
    """
    import yaml

    check_size(where, len(text), LARGEST_SETTINGS)
    loader = yaml.SafeLoader(text)
    try:
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _check_nodes(node, where)
            value = loader.construct_document(node)
            check_text(text, value)
            return node, value
        except InputError:
            raise
        except RecursionError:
            raise InputError(f"{where} is not YAML: nested more than {DEEPEST} deep") from None
        except yaml.YAMLError:
            raise
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            # PyYAML's constructors let what int, float and datetime raise pass.
            raise InputError(f"{where} is not YAML: a value cannot be read ({str(error)[:200]})") from None
    finally:
        loader.dispose()


def _check_nodes(root: "yaml.Node", where: Path | str) -> None:
    count, level = 0, [root]
    for _ in range(DEEPEST):
        level = [item for node in level for item in _inside(node)]
        count += len(level)
        if count > MOST_ITEMS:
            raise InputError(
                f"{where} holds more than {MOST_ITEMS} values, those of aliases counted each time"
            )
        if not level:
            return
    raise RecursionError


def _inside(node: "yaml.Node") -> "Iterator[yaml.Node]":
    if isinstance(node.value, list):
        for item in node.value:
            yield from item if isinstance(item, tuple) else (item,)


def check_expansion(what: Path | str, size: int, packed: int) -> None:
    """Refuse a compressed file that expands beyond all measure, as one of zeros does."""
    if size > FREE_EXPANSION and size > LARGEST_RATIO * packed:
        raise InputError(
            f"{what} expands from {packed} bytes to {size} or more: beyond {FREE_EXPANSION} bytes at most "
            f"{LARGEST_RATIO} times are read; do not use this file"
        )


def file_blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, block by block."""
    with open_file(path) as file, refusing(path, "file", "fetch it again"):
        while block := file.read(BLOCK):
            yield block


def unpacked_blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, block by block; that of a gzipped one unpacked."""
    if path.suffix != ".gz":
        yield from file_blocks(path)
        return
    with open_file(path) as file, refusing(path, "gzipped file", "fetch it again"):
        packed, total = os.fstat(file.fileno()).st_size, 0
        stream = gzip.GzipFile(fileobj=file)
        while block := stream.read(BLOCK):
            total += len(block)
            check_expansion(path, total, packed)
            yield block


def open_zip(path: Path) -> zipfile.ZipFile:
    """A zip archive whose members are few enough, not encrypted, and expand within limits."""
    check_regular(path)
    with refusing(path, "zip archive", "write or fetch it again"):
        archive = zipfile.ZipFile(path)
    try:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise InputError(f"{path} holds {len(members)} files, and at most {MOST_MEMBERS} are read")
        for member in members:
            if member.flag_bits & 1:
                raise InputError(f"{path}: {member.filename!r} is encrypted; store it without a password")
            check_expansion(f"{path}: {member.filename!r}", member.file_size, member.compress_size)
    except InputError:
        archive.close()
        raise
    return archive


def check_weights(path: Path) -> bool:
    """Whether a file of ``torch.save`` is a zip archive; one whose members together are larger than itself is refused.

    ``torch.save`` compresses nothing, but ``torch.load`` expands what is compressed. So weights of any size are read,
    and a small file never takes more memory than it has bytes. Names and shapes are pickled, and read whole.
    """
    with open_file(path) as file:
        if file.read(4) != b"PK\x03\x04":
            check_size(path, path.stat().st_size, LARGEST_OLD_WEIGHTS)
            return False
    with open_zip(path) as archive:
        members = archive.infolist()
    total, size = sum(member.file_size for member in members), path.stat().st_size
    if total > size:
        raise InputError(
            f"{path} expands from {size} bytes to {total}: weights are stored uncompressed; write it again with "
            "torch.save, best as safetensors"
        )
    for member in members:
        if member.filename.endswith(".pkl"):
            check_size(f"{path}: {member.filename!r}", member.file_size, LARGEST_DOCUMENT)
    return True


class PickleFile:
    """A file of pickles: text or bytes in one are limited to ``LARGEST_DOCUMENT``, arrays that follow it are not."""

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self._path, self._file = path, file
        self.readline, self.readinto = file.readline, file.readinto
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        check_size(f"{self._path}: a value in it", size, LARGEST_DOCUMENT)
        return self._file.read(size)


def read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, limit: int) -> bytes:
    """The content of a member of a zip archive; a size that the archive states is not believed."""
    what = f"{path}: {member.filename!r}"
    check_size(what, member.file_size, limit)
    with refusing(what, "member of a zip archive", "write or fetch it again"), archive.open(member) as stream:
        data = stream.read(limit + 1)
    check_size(what, len(data), limit)
    return data


@contextmanager
def opened_tar(path: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]]:
    """The members of a tar archive in turn, before their content is passed; each within limits."""
    with (
        open_file(path) as file,
        refusing(path, "tar archive", "fetch it again"),
        tarfile.open(fileobj=file) as archive,
    ):
        yield _members(path, archive, os.fstat(file.fileno()).st_size)


def _members(
    path: Path, archive: tarfile.TarFile, packed: int
) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    total = count = 0
    for member in archive:
        total, count = total + max(member.size, 0), count + 1
        check_expansion(path, total, packed)
        if count > MOST_MEMBERS:
            raise InputError(f"{path} holds more than {MOST_MEMBERS} files; that many are not read")
        yield member, archive
