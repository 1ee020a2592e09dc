"""Mistakes put into files: bytes, JSON documents, YAML settings, tensors, arrays, tables, archives, special files."""

import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

Spoil = Callable[[Path, Random], None]
"""Puts a mistake into the file at a path."""

DEEP = 100_000
DIGITS = "9" * 400
VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, "", "x", [[]], {"": {}}, [None], {"a": [1]}),
    *(0, -1, 1, 3.7, -0.0, 1e308, 5e-324, 2**31, 2**62, 2**64, -(2**63), 10**27, float("nan"), float("inf")),
    *(
        "\x1b[31mred\x07",
        "\u202eabc",
        "<script>",
        "| a | b |",
        "../../x",
        "nan",
        "1e400",
        DIGITS,
        "\ud800",
        "a" * 5000,
    ),
)


def flip_bits(path: Path, rng: Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 8))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def flip_early_bits(path: Path, rng: Random) -> None:
    """In the first 200 bytes, where headers are."""
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(min(200, len(data)))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def flip_late_bits(path: Path, rng: Random) -> None:
    """In the last 200 bytes, where the footers of archives and tables are."""
    data = bytearray(path.read_bytes())
    if data:
        data[-1 - rng.randrange(min(200, len(data)))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def empty(path: Path, rng: Random) -> None:
    path.write_bytes(b"")


def insert_noise(path: Path, rng: Random) -> None:
    data, at = path.read_bytes(), rng.randrange(path.stat().st_size + 1)
    path.write_bytes(data[:at] + rng.randbytes(rng.choice((1, 4, 64))) + data[at:])


def zero_block(path: Path, rng: Random) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data) + 1)
    length = len(data[at : at + 64])
    data[at : at + length] = bytes(length)
    path.write_bytes(data)


def all_noise(path: Path, rng: Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice((1, 16, 500))))


def large_number(path: Path, rng: Random) -> None:
    """A word of the file becomes a huge one."""
    data = bytearray(path.read_bytes())
    if len(data) >= 8:
        at = rng.randrange(len(data) - 7)
        data[at : at + 8] = struct.pack("<Q", rng.choice((2**63 - 1, 2**40, 2**31, 2**64 - 1)))
    path.write_bytes(data)


BYTES: tuple[Spoil, ...] = (
    *(
        flip_bits,
        flip_early_bits,
        flip_late_bits,
        cut,
        empty,
        insert_noise,
        zero_block,
        all_noise,
        large_number,
    ),
)


def into_folder(path: Path, rng: Random) -> None:
    path.unlink()
    path.mkdir()


def into_fifo(path: Path, rng: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def into_device(path: Path, rng: Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/urandom", "/dev/null")))


def into_dangling(path: Path, rng: Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice((path.name, "nowhere")))


SPECIAL: tuple[Spoil, ...] = (into_folder, into_fifo, into_device, into_dangling)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inside for place in _places(item, (*path, key)))]


def _set(document: Any, place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> None:
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    change(holder, place[-1])


def change_json(document: Any, rng: Random) -> Any:
    """The document with one to three values changed, taken out or added."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = [place for place in _places(document) if place]
        if not places:
            return rng.choice(VALUES)
        # Half of the time near the root, where a change is not lost among a thousand numbers.
        shallow = [place for place in places if len(place) <= 2]
        place = rng.choice(shallow if rng.random() < 0.5 else places)
        kind = rng.random()
        if kind < 0.2:
            _set(document, place, lambda holder, key: holder.pop(key))
        elif kind < 0.3 and isinstance(place[-1], str):
            _set(document, place, lambda holder, key: holder.__setitem__(f"{key}x", holder.pop(key)))
        else:
            value = rng.choice(VALUES)
            _set(document, place, lambda holder, key, value=value: holder.__setitem__(key, value))
    return document


def json_value(path: Path, rng: Random) -> None:
    if path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(change_json(json.loads(lines[at]), rng))
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_text(json.dumps(change_json(json.loads(path.read_text()), rng)))


def json_text(path: Path, rng: Random) -> None:
    """Text that is hard to read as JSON, or is another document."""
    number = f'{{"format": 1, "x": {DIGITS}}}'
    path.write_text(
        rng.choice(
            (
                "[" * DEEP,
                '{"a":' * DEEP,
                number,
                DIGITS,
                "null",
                "[]",
                "3",
                '{"format": 1}',
                '{"format": true}',
                '{"format": 1e400}',
                '{"format": -1}',
                "\ufeff{}",
                '{"format": 1, "format": 1}',
                "NaN",
                '"\\ud800"',
            )
        )
    )


def json_deep_value(path: Path, rng: Random) -> None:
    """A value that is nested 100,000 deep, in a document that is right otherwise."""
    if path.suffix == ".jsonl":
        path.write_text(f'{{"update": {"[" * DEEP}{"]" * DEEP}}}\n')
        return
    document = json.loads(path.read_text())
    document[rng.choice([*document])] = "DEEP"
    path.write_text(json.dumps(document).replace('"DEEP"', "[" * DEEP + "]" * DEEP, 1))


JSON: tuple[Spoil, ...] = (*[json_value] * 12, json_text, json_deep_value)


YAML_TEXTS = (
    "omega: &a [*a]\n",
    "eps: !!int '0x'\n",
    "eps: !!timestamp '2020'\n",
    "eps: !!float 'x'\n",
    "eps: !!binary 'x'\n",
    "? [1, 2]\n: 3\n",
    "? {a: b}\n: 3\n",
    "<<: 3\n",
    "<<: [1]\n",
    "eps: !!python/object/apply:os.system ['true']\n",
    "eps: !!set {a, b}\n",
    "eps: 2020-99-99\n",
    "eps: 2020-01-01 99:99:99\n",
    "eps: 1:99:99999999999999999999999999999\n",
    f"eps: {DIGITS}\n",
    f"eps: 1e{DIGITS}\n",
    f"updates: {DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}{DIGITS}\n",
    "updates: .inf\n",
    "updates: .nan\n",
    "eps: .nan\n",
    "lr: 1e308\n",
    "model_args: {a: .nan}\n",
    'model: "\\x1b[31m"\n',
    'data: "a\\0b"\n',
    "---\na: 1\n---\nb: 2\n",
    "%YAML 9.9\n---\na: 1\n",
    "[" * 5000,
    "{" * 5000,
    "- " * 5000,
    "a: &x 1\n" * 3,
    "\ufeffdata: digits\nmodel: linear\nupdates: 1\nfinal_size: 4\n",
    "\t\n",
    "data: digits\x07\n",
    "'" * 5000,
    "eps: &a {b: *a}\n",
)
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{k}: &a{k} [{','.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 10)
)
"""Ten levels of ten aliases: ten thousand million items."""


def yaml_text(path: Path, rng: Random) -> None:
    path.write_text(path.read_text() * rng.randrange(2) + rng.choice(YAML_TEXTS))


def yaml_value(path: Path, rng: Random) -> None:
    """A setting with another value."""
    lines = path.read_text().splitlines()
    at = rng.randrange(len(lines))
    value = (
        json.dumps(rng.choice(VALUES))
        if rng.random() < 0.7
        else rng.choice(("*a", "!!int x", "|", "- - -", "@"))
    )
    lines[at] = f"{lines[at].partition(':')[0]}: {value}"
    path.write_text("\n".join(lines) + "\n")


YAML: tuple[Spoil, ...] = (*[yaml_text] * 4, *[yaml_value] * 4, flip_bits, cut, all_noise)


def safetensors_header(path: Path, rng: Random) -> None:
    """A header with another value, of the length that it then has."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    kind = rng.randrange(4)
    if kind == 0:
        header["__metadata__"] = {
            "freeat": rng.choice(("no json", "[]", "3", '{"format": "a"}', "[" * 9999, DIGITS))
        }
    elif kind == 1:
        name = rng.choice([name for name in header if name != "__metadata__"])
        header[f"other.{name}"] = header.pop(name)
    elif kind == 2:
        name = rng.choice([name for name in header if name != "__metadata__"])
        header[name]["dtype"] = rng.choice(("F64", "I32", "BOOL", "F16", "X9", "F8_E4M3"))
    else:
        change_json(header, rng)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)


SAFETENSORS: tuple[Spoil, ...] = (*[safetensors_header] * 8, *BYTES)


def state_dict(path: Path, rng: Random) -> None:
    """A .pt file of anything but the state dict that the model needs."""
    import torch

    state = torch.load(path, weights_only=True)
    first = next(iter(state))
    odd = rng.choice(
        (
            lambda v: v.to("meta"),
            lambda v: v.to_sparse(),
            lambda v: v.to(torch.complex64),
            lambda v: torch.full_like(v, torch.nan),
            lambda v: torch.zeros(1).expand(2**40),
            lambda v: v[:0],
            lambda v: v.bool(),
            lambda v: v.to(torch.float8_e4m3fn),
            lambda v: "text",
            lambda v: {"a": v},
        )
    )
    changed = {
        name: odd(value) if name == first or rng.random() < 0.5 else value for name, value in state.items()
    }
    content = (
        changed,
        changed,
        {"state_dict": changed},
        {3: state[first]},
        [state],
        3,
        None,
        {"model": {"net": 3}},
    )
    torch.save(rng.choice(content), path)


PT: tuple[Spoil, ...] = (*[state_dict] * 6, *BYTES)


def npz_array(path: Path, rng: Random) -> None:
    """One array of another type, shape or content."""
    with np.load(path) as stored:
        arrays = dict(stored)
    name = rng.choice([*arrays])
    n = arrays[name].shape[0] if arrays[name].ndim else 12
    whole = (
        np.full(n, 2**62),
        np.full(n, -5),
        np.arange(n),
        np.zeros(n),
        np.full(n, 2**63, np.uint64),
        np.zeros((n, 1)),
    )
    odd = (
        np.zeros(()),
        np.zeros(0),
        np.array(["x"] * n),
        np.array([b"x"] * n),
        np.zeros((n, 3), "M8[s]"),
        np.zeros((1,) * 30),
    )
    pixels = (
        np.full((n, 8, 8, 1), np.nan),
        np.full((n, 8, 8, 1), 1e30),
        np.zeros((n, 0, 8, 1)),
        np.zeros((n, 8, 8, 1), "c8"),
    )
    records = (np.zeros(n, [("a", "i4"), ("b", "f8")]), np.zeros((n, 8, 8, 2)), np.zeros((n, 3, 3, 3)))
    arrays[name] = rng.choice((*whole, *odd, *pixels, *records))
    if rng.random() < 0.2:
        arrays["classes"] = rng.choice(
            (np.array(["\x1b[2J"] * 10), np.zeros((2, 2)), np.array("x"), np.full(3, np.nan))
        )
    if rng.random() < 0.1:
        arrays["layout"] = rng.choice((np.array("XY"), np.zeros(4), np.array(["NHWC", "NCHW"])))
    np.savez(path, **arrays)


def npz_header(path: Path, rng: Random) -> None:
    """A member whose header claims another shape than the member holds, or that is no array."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice([*members])
    shape = rng.choice(
        ("(1125899906842624, 8, 8, 1)", "(-1, 8)", "(2, 2, 'x')", "(99999,)", f"({DIGITS},)", "(" * 300)
    )
    kind = rng.choice(("'|u1'", "'<f8'", "'|O'", "'|V1000000000'", "'<U2000000000'", "[('a', '<f8')]", "3"))
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    claimed = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) & 0xFFFF) + header
    members[name] = rng.choice((claimed, claimed, b"no array", b"", b"\x93NUMPY\x09\x00", rng.randbytes(200)))
    with zipfile.ZipFile(path, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, data in members.items():
            archive.writestr(member, data)


def zip_entry(path: Path, rng: Random) -> None:
    """Another method, flag or size in the directory of a zip archive and in its entries."""
    data = bytearray(path.read_bytes())
    kind = rng.randrange(4)
    for signature, flags, method, size in ((b"PK\x03\x04", 6, 8, 22), (b"PK\x01\x02", 8, 10, 24)):
        at = data.find(signature)
        while at >= 0:
            if kind == 0:
                data[at + flags] |= 1  # encrypted
            elif kind == 1:
                data[at + method : at + method + 2] = struct.pack("<H", 99)
            elif kind == 2:
                data[at + size : at + size + 4] = struct.pack("<I", 2**32 - 2)
            elif rng.random() < 0.3:
                data[at + rng.randrange(4, 30)] ^= 0xFF
            at = data.find(signature, at + 4)
    path.write_bytes(data)


NPZ: tuple[Spoil, ...] = (*[npz_array] * 5, *[npz_header] * 3, zip_entry, *BYTES)
ZIP: tuple[Spoil, ...] = (*[zip_entry] * 5, *BYTES)


def parquet_table(path: Path, rng: Random) -> None:
    """A table without rows, with columns of other types, or with metadata that 🤗 did not write."""
    import pyarrow
    from pyarrow import ipc, parquet

    n = 12
    images = rng.choice(
        (
            pyarrow.array([b"no image"] * n),
            pyarrow.array([None] * n, pyarrow.binary()),
            pyarrow.array([[[1, 2], [3, 4]]] * n),
            pyarrow.array([[[1, 2], [3]]] * n),
            pyarrow.array([[[1.5, float("nan")], [3, 4]]] * n),
            pyarrow.array(["x"] * n),
            pyarrow.array([{"bytes": b"x", "path": None}] * n),
            pyarrow.array([{"path": "x"}] * n),
            pyarrow.array([[]] * n, pyarrow.list_(pyarrow.int64())),
            pyarrow.array([2**40] * n),
            pyarrow.array([None] * n),
        )
    )
    labels = rng.choice(
        (
            [0, 1] * 6,
            ["a", "b"] * 6,
            [2**62] * n,
            [None] * n,
            [1.5] * n,
            [[1]] * n,
            [True] * n,
            [b"x"] * n,
            ["a", None] * 6,
        )
    )
    metadata = rng.choice(
        (
            None,
            "no json",
            "3",
            "[]",
            '{"info": 3}',
            '{"info": {"features": 3}}',
            "[" * 9999,
            "�",
            '{"info": {"features": []}}',
            '{"info": {"features": {"image": 3, "label": 4}}}',
            '{"info": {"features": {"label": {"_type": "ClassLabel", "names": 3}}}}',
            '{"info": {"features": {"label": {"_type": "ClassLabel", "names": {"a": 1}}}}}',
        )
    )
    table = pyarrow.table({"image": images, "label": pyarrow.array(labels)})
    if metadata is not None:
        table = table.replace_schema_metadata({b"huggingface": metadata.encode("utf-8", "surrogateescape")})
    table = rng.choice((table, table, table.slice(0, 0), table.select([0]), table.select([])))
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_stream(str(path), table.schema) as out:
            out.write_table(table)


TABLE: tuple[Spoil, ...] = (*[parquet_table] * 6, *BYTES)
