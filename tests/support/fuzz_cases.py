"""The bad inputs: small files of every kind, the commands that read them, and the mistakes that were once made."""

import gzip
import io
import json
import os
import shlex
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import click
import numpy as np

from freeat.cli.main import COMMANDS, cli
from freeat.cli.main import run as freeat
from fuzz_mutations import (
    BOMB,
    BYTES,
    DEEP,
    DIGITS,
    JSON,
    NPZ,
    PT,
    SAFETENSORS,
    SPECIAL,
    TABLE,
    YAML,
    YAML_TEXTS,
    ZIP,
    Spoil,
    into_device,
    into_fifo,
)
from fuzzing import Case

SMALL = (
    "--train-size 40 --model mlp-w4 --norm l2 --eps 0.5 --updates 4 --batch-size 16 --threads 1 --eval-every 2 "
    "--eval-size 8 --final-size 8 --attack pgd-1 --device cpu"
)
TRAIN = f"train --data digits {SMALL} --algorithm free-2"
STUDY = (
    "stability --model mlp-w4-softplus --algorithms fast,free-2 --updates 4 --batch-size 10 --replaced 2 --seeds 1 "
    "--probes 4 --attack-steps 2 --eval-size 10 --probe-times 2 --train-size 20 --jobs 1 --device cpu"
)
POPULATION = "population --algorithms fast,free-2 --n 10 --d 4 --updates 20 --seeds 2 --times 2 --jobs 1"
COMPARE = f"compare --data digits {SMALL} --algorithms fast,free-2 --seeds 1 --jobs 1"
DATA = (
    "--model linear --norm l2 --eps 0.5 --updates 2 --batch-size 8 --final-size 4 --attack pgd-1 --threads 1 "
    "--device cpu"
)
SPEC = "\n".join(
    f"{name.removeprefix('--')}: {value}"
    for name, value in zip(SMALL.split()[::2], SMALL.split()[1::2], strict=True)
    if name != "--device"
)


def make_assets(folder: Path) -> None:
    """A small file or folder of every kind that freeat reads, made by freeat where it writes such files."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        for command in (
            f"{TRAIN} --out run --ema 0.9",
            f"{TRAIN} --out other --seed 1",
            "evaluate run --attack pgd-1 --eps 0.2 -n 8 --examples",
            "transfer run --to other --attack pgd-1 -n 8",
            "export run --out exported",
            f"{COMPARE} --out comparison",
            f"{STUDY} --out study",
            f"{POPULATION} --out population",
        ):
            assert freeat(shlex.split(command)) == 0, command
        _stopped(folder / "stopped")
        _reproduction(folder / "reproduction")
        _weights(folder)
        _data_sets(folder)
        (folder / "spec.yaml").write_text(f"{SPEC}\n")
    finally:
        os.chdir(before)


def _stopped(folder: Path) -> None:
    """A run that was stopped after a checkpoint."""
    from freeat.runs.run import RunOptions, execute
    from freeat.runs.spec import split_settings
    from freeat.training.trainer import Stopped

    words = shlex.split(TRAIN)[1:]
    settings = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }
    settings.pop("device")
    options = RunOptions(
        folder=folder, device="cpu", checkpoint_every=0, on_collapse="warn", trust_code=False
    )
    asked = iter((False,))
    try:
        execute(*split_settings(settings), options, should_stop=lambda: next(asked, True))
    except Stopped:
        assert list(folder.glob("checkpoints/*.safetensors"))
        return
    raise AssertionError("the run was not stopped")


def _reproduction(folder: Path) -> None:
    from report_store import reproduction

    folder.mkdir()
    (folder / "reproduction.json").write_text(json.dumps(reproduction()))


def _weights(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "run" / "model.safetensors")
    save_file(state, folder / "weights.safetensors")
    torch.save(state, folder / "weights.pt")


def _data_sets(folder: Path) -> None:
    import pyarrow
    from pyarrow import ipc, parquet

    from freeat.data.synthetic import cifar10_python, encoded, svhn, tiny_imagenet
    from synthetic_files import idx, tar_gz, zipped

    draw = np.random.default_rng(0)
    x, y = draw.random((60, 8, 8, 1), np.float32), np.arange(60) % 10
    np.savez(folder / "data.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    images = [encoded(draw.integers(0, 256, (8, 8, 3), np.uint8)) for _ in range(12)]
    for k, image in enumerate(images):
        path = folder / "images" / ("train" if k < 8 else "test") / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    zipped(folder / "images")
    table = pyarrow.table({"image": images, "label": [0, 1] * 6})
    parquet.write_table(table, folder / "table.parquet")
    (folder / "arrow").mkdir()
    with ipc.new_stream(str(folder / "arrow" / "train.arrow"), table.schema) as out:
        out.write_table(table)
    idx(folder / "idx", packed=True)
    cifar10_python(folder / "cifar-10-batches-py", 4)
    tar_gz(folder / "cifar-10-batches-py")
    svhn(folder / "svhn")
    tiny_imagenet(folder / "tiny-imagenet-200", 4)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Files of one kind (a pattern in an asset), the mistakes they may hold, and the commands that read them."""

    files: str
    spoils: Sequence[Spoil]
    commands: Sequence[str]
    also: tuple[str, ...] = ()
    weight: int = 1
    writes: tuple[str, ...] = ()

    def case(self, rng: Random, number: int) -> Case:
        asset, _, pattern = self.files.partition("/")
        spoil = rng.choice([*self.spoils, rng.choice(SPECIAL)])
        command = rng.choice(self.commands)

        def spoiled(folder: Path, rng: Random) -> None:
            paths = sorted((folder / asset).glob(pattern)) if pattern else [folder / asset]
            spoil(rng.choice([path for path in paths if path.is_file()]), rng)

        return Case(
            name=f"{number} {self.files} {spoil.__name__}: {command}",
            assets=(asset, *self.also),
            spoil=spoiled,
            act=CALLS.get(command) or shlex.split(command),
            writes=command in self.writes,
        )


def _load(reference: str) -> Callable[[], object]:
    def call() -> object:
        import freeat

        return freeat.load(reference)

    return call


def _load_result(reference: str) -> Callable[[], object]:
    def call() -> object:
        import freeat

        return freeat.load_result(reference)

    return call


def _load_data(path: str) -> Callable[[], object]:
    def call() -> object:
        import freeat

        return freeat.load_data(path)

    return call


CALLS: dict[str, Callable[[], object]] = {
    "load run": _load("run"),
    "load run@ema": _load("run@ema"),
    "load exported": _load("exported"),
    "load_result run": _load_result("run"),
    **{
        f"load_data {name}": _load_data(name)
        for name in ("data.npz", "images", "images.zip", "table.parquet", "arrow", "idx", "svhn")
    },
}

REPORT = "report . --out page.html"
RESUME_RUN = f"{TRAIN} --out run --ema 0.9"
ON_RUNS = (
    *("runs", "runs --json", "runs show run", "runs show run --json", REPORT, "evaluate run --device cpu"),
    *("evaluate run --attack pgd-1 -n 4 --device cpu", "export run --out new", "load run", "load_result run"),
    *("runs diff run other -n 4 --device cpu", "transfer run --to other --attack pgd-1 -n 4 --device cpu"),
    *(
        "bound --from run --points 4",
        RESUME_RUN,
        f"{TRAIN} --out new --init-from run",
        "runs delete run --yes",
    ),
)
CHANGES_RUNS = (RESUME_RUN, "runs delete run --yes")
EVALUATE_FILE = "evaluate mlp-w4@{} --data digits --attack pgd-1 --eps 0.5 --norm l2 -n 4 --device cpu"
RESUME_STOPPED = f"{TRAIN} --out stopped"


def _data_target(files: str, spoils: Sequence[Spoil], weight: int = 2) -> Target:
    name = files.partition("/")[0]
    evaluate = f"evaluate run --data {name} --attack pgd-1 -n 4 --device cpu"
    train = f"train --data {name} {DATA} --out new"
    return Target(
        files=files,
        spoils=spoils,
        commands=(train, train, f"load_data {name}" if f"load_data {name}" in CALLS else train, evaluate),
        also=("run",),
        weight=weight,
    )


TARGETS: tuple[Target, ...] = (
    Target(
        files="run/run.json", spoils=JSON, commands=ON_RUNS, also=("other",), weight=5, writes=CHANGES_RUNS
    ),
    Target(
        files="run/result.json", spoils=JSON, commands=ON_RUNS, also=("other",), weight=4, writes=CHANGES_RUNS
    ),
    Target(
        files="run/history.jsonl",
        spoils=(*JSON, *BYTES),
        commands=ON_RUNS,
        also=("other",),
        weight=2,
        writes=CHANGES_RUNS,
    ),
    Target(
        files="run/*.safetensors",
        spoils=SAFETENSORS,
        commands=(*ON_RUNS, "load run@ema"),
        also=("other",),
        weight=4,
        writes=CHANGES_RUNS,
    ),
    Target(
        files="run/results/*.json",
        spoils=JSON,
        commands=(
            REPORT,
            REPORT,
            "evaluate run --attack pgd-1 --eps 0.2 -n 8 --device cpu",
            "export run --out new",
        ),
        also=("other",),
        weight=4,
    ),
    Target(files="run/results/examples/*.npz", spoils=NPZ, commands=(REPORT,), also=("other",)),
    Target(
        files="stopped/checkpoints/*.json",
        spoils=JSON,
        commands=(RESUME_STOPPED, "runs", REPORT),
        writes=(RESUME_STOPPED,),
        weight=2,
    ),
    Target(
        files="stopped/checkpoints/*.safetensors",
        spoils=SAFETENSORS,
        commands=(RESUME_STOPPED,),
        writes=(RESUME_STOPPED,),
    ),
    Target(
        files="stopped/history.jsonl",
        spoils=JSON,
        commands=(RESUME_STOPPED, REPORT, "runs"),
        writes=(RESUME_STOPPED,),
    ),
    Target(
        files="comparison/comparison.json",
        spoils=JSON,
        commands=(REPORT, f"{COMPARE} --out comparison"),
        writes=(f"{COMPARE} --out comparison",),
        weight=2,
    ),
    Target(
        files="comparison/runs/*/*/*.json",
        spoils=JSON,
        commands=(REPORT, "runs", "runs --json", f"{COMPARE} --out comparison"),
        writes=(f"{COMPARE} --out comparison",),
        weight=2,
    ),
    Target(
        files="study/**/*.json",
        spoils=JSON,
        commands=(REPORT, REPORT, f"{STUDY} --out study"),
        writes=(f"{STUDY} --out study",),
        weight=3,
    ),
    Target(
        files="population/**/*.json",
        spoils=JSON,
        commands=(REPORT, REPORT, f"{POPULATION} --out population"),
        writes=(f"{POPULATION} --out population",),
        weight=2,
    ),
    Target(files="reproduction/reproduction.json", spoils=JSON, commands=(REPORT,), weight=3),
    Target(
        files="exported/freeat.json",
        spoils=JSON,
        commands=("load exported", "evaluate exported --data digits --attack pgd-1 -n 4 --device cpu"),
        weight=3,
    ),
    Target(files="exported/model.safetensors", spoils=SAFETENSORS, commands=("load exported",)),
    Target(
        files="weights.safetensors",
        spoils=SAFETENSORS,
        commands=(
            EVALUATE_FILE.format("weights.safetensors"),
            f"{TRAIN} --out new --init-from weights.safetensors",
        ),
        weight=3,
    ),
    Target(files="weights.pt", spoils=PT, commands=(EVALUATE_FILE.format("weights.pt"),), weight=3),
    Target(
        files="spec.yaml",
        spoils=YAML,
        commands=(
            "train spec.yaml --out new --device cpu --updates 4",
            "compare spec.yaml --algorithms fast --seeds 1 --out new --updates 4",
        ),
        weight=6,
    ),
    _data_target("data.npz", NPZ, 6),
    _data_target("images/*/*/*.png", BYTES),
    _data_target("images.zip", ZIP, 3),
    _data_target("table.parquet", TABLE, 4),
    _data_target("arrow/train.arrow", TABLE, 3),
    _data_target("idx/*.gz", BYTES, 1),
    _data_target("cifar-10-batches-py/*", BYTES, 1),
    _data_target("cifar-10-batches-py.tar.gz", BYTES, 1),
    _data_target("svhn/*.mat", BYTES, 1),
    _data_target("tiny-imagenet-200/val/val_annotations.txt", BYTES, 1),
)

TEXTS = (
    *(
        "",
        " ",
        "x",
        "nan",
        "inf",
        "-inf",
        "-1",
        "0",
        "1",
        "2",
        "0.5",
        "1e308",
        "-1e308",
        "1e-320",
        "1e400",
        "9" * 27,
        DIGITS,
    ),
    *(
        "0x10",
        "1/0",
        "8/255",
        "1/3/5",
        "nan/1",
        "\x1b[31mred",
        "../..",
        "a=b",
        "{",
        "{}",
        "[]",
        "[1]",
        '{"a": NaN}',
        "1,2",
        ",",
    ),
    *(
        ":",
        "1:2:0",
        "0:1:1e-9",
        "é",
        "٣",
        "1_0",
        "true",
        "None",
        "/dev/full",
        "/dev/zero",
        "/dev/null",
        "a\nb",
        "@",
        "%s",
        "~",
        "*",
    ),
)
"""Values of options: each is refused, or a value that takes no time."""

OPTIONED: dict[str, tuple[str, tuple[str, ...]]] = {
    "train": (f"{TRAIN} --out new", ()),
    "evaluate": ("evaluate run --attack pgd-1 --eps 0.2 -n 4 --device cpu --out new", ("run",)),
    "transfer": ("transfer run --to other --attack pgd-1 -n 4 --device cpu --out new", ("run", "other")),
    "compare": (f"{COMPARE} --out comparison", ("comparison",)),
    "stability": (f"{STUDY} --out study", ("study",)),
    "population": (f"{POPULATION} --out population", ("population",)),
    "report": ("report run --out page.html", ("run",)),
    "runs": ("runs", ("run",)),
    "export": ("export run --out new", ("run",)),
    "bound": ("bound --algorithm free", ()),
    "models": ("models", ()),
    "data": ("data list", ()),
    "reproduce": ("reproduce table-1 --scale smoke --dry-run --store new", ()),
}
COSTLY = ("--compile", "--help", "--backend", "--address", "--track", "--onnx", "--strength")
"""Options that are left out: they take long, or reach for a cluster, and hold no value."""


def option_case(rng: Random, number: int) -> Case:
    """A command with a value of an option outside its range."""
    name = rng.choice((*[*OPTIONED] * 2, *["train"] * 8, *["evaluate"] * 3, *["bound"] * 3))
    command, assets = OPTIONED[name]
    options = [o for o in _options(name) if not {*o.opts} & {*COSTLY}]
    option = rng.choice(options)
    value = rng.choice(TEXTS)
    if (name in ("compare", "stability", "population")) and value in ("1", "2", "0.5", "8/255"):
        value = "x"  # a grid of other runs takes long
    words = [*shlex.split(command), option.opts[0], value]
    return Case(
        name=f"{number} option {option.opts[0]} {value[:30]!r}: {name}",
        assets=assets,
        spoil=lambda folder, rng: None,
        act=words,
        writes=True,
    )


def _options(name: str) -> list[click.Option]:
    assert name in COMMANDS
    command = cli.get_command(click.Context(cli), name)
    if isinstance(command, click.Group) and name == "data":
        command = command.commands["list"]
    assert command is not None
    return [p for p in command.params if isinstance(p, click.Option) and not p.is_flag]


def random_cases(count: int, seed: int) -> Iterator[Case]:
    """Seeded mutations of every kind of file, and every fifth time of the options."""
    targets = [target for target in TARGETS for _ in range(target.weight)]
    order = Random(f"{seed} order")
    order.shuffle(targets)
    for number in range(count):
        rng = Random(f"{seed} {number}")
        if number % 5 == 4:
            yield option_case(rng, number)
        else:
            yield targets[number % len(targets)].case(rng, number)


def all_cases(count: int, seed: int) -> list[Case]:
    """The named cases and seeded ones, ``count`` in all; few are taken evenly from all."""
    named = named_cases()
    if count < 2 * len(named):
        some = named[:: max(1, 2 * len(named) // count)][: count // 2]
        return [*some, *random_cases(count - len(some), seed)]
    return [*named, *random_cases(count - len(named), seed)]


def _write(name: str, content: bytes | str) -> Callable[[Path, Random], None]:
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content

    def spoil(folder: Path, rng: Random) -> None:
        (folder / name).write_bytes(data)

    return spoil


def _json_change(name: str, *keys: str, value: object) -> Callable[[Path, Random], None]:
    def spoil(folder: Path, rng: Random) -> None:
        document = holder = json.loads((folder / name).read_text())
        for key in keys[:-1]:
            holder = holder[key]
        holder[keys[-1]] = value
        (folder / name).write_text(json.dumps(document))

    return spoil


def _named(
    name: str,
    assets: Sequence[str],
    spoil: Callable[[Path, Random], None],
    *commands: str,
    writes: bool = False,
) -> Iterator[Case]:
    for command in commands:
        act = CALLS.get(command) or shlex.split(command)
        yield Case(name=f"{name}: {command}", assets=tuple(assets), spoil=spoil, act=act, writes=writes)


def named_cases() -> list[Case]:
    """The mistakes that were found by hand, each with the commands that stumbled over it."""
    return [replace(case, name=f"named {case.name}") for case in _named_cases()]


def _named_cases() -> Iterator[Case]:
    runs = ("run", "other")
    readers = ("runs", REPORT, "evaluate run --device cpu", "export run --out new", "load run")
    for keys, value in (
        (("updates",), []),
        (("identity",), 3.7),
        (("spec",), 3),
        (("data", "classes"), 3),
        (("data", "shape"), [0, 0, 0]),
        (("data", "shape"), [1, 2**40, 2**40]),
        (("resolved", "model"), "mlp-w99999999"),
        (("resolved", "model"), "x"),
        (("resolved", "model"), "os:system"),
        (("resolved", "algorithm"), "x"),
        (("updates",), 10**400),
        (("semantics",), None),
        (("notes",), ["\x1b[2J\x07"]),
        (("data", "classes"), ["a"]),
        (("resolved", "lr"), 1e308),
    ):
        spoil = _json_change("run/run.json", *keys, value=value)
        yield from _named(f"run.json {'.'.join(keys)} {str(value)[:20]}", runs, spoil, *readers)
    for name in ("run/run.json", "run/result.json"):
        for text in ("[" * DEEP, f'{{"format": 1, "update": {DIGITS}}}', '{"format": 1}', "\xff\xfe", ""):
            yield from _named(f"{name} {text[:12]!r}", runs, _write(name, text), "runs", REPORT)
    yield from _named(
        "result.json is a folder", runs, _into_folder("run/result.json"), RESUME_RUN, writes=True
    )
    for name in ("run/run.json", "run/model.safetensors", "run/result.json", "run/history.jsonl"):
        for special in (into_fifo, into_device):
            spoil = _made_special(name, special)
            yield from _named(f"{name} {special.__name__}", runs, spoil, *readers[:3], "load run")
    for content in (
        "x",
        "[]",
        "3",
        "{}",
        '{"pid": "x", "host": 3}',
        '{"pid": 1e400}',
        "[" * DEEP,
        "\0",
        f'{{"pid": {DIGITS}}}',
        '{"pid": [], "host": "' + os.uname().nodename + '"}',
    ):
        yield from _named(
            f"lease {content[:20]!r}",
            ("stopped",),
            _write("stopped/lease.json", content),
            "runs",
            "runs show stopped",
        )
    yield from _named(
        "lease is a fifo", ("stopped",), lambda folder, rng: os.mkfifo(folder / "stopped/lease.json"), "runs"
    )

    for text in (*YAML_TEXTS, BOMB):
        yield from _named(f"spec {text[:25]!r}", (), _write("spec.yaml", text), "train spec.yaml --out new")
    for device in ("/dev/full", "/dev/zero", "/dev/urandom", "/dev/null"):
        yield from _named(
            "spec",
            (),
            lambda folder, rng: None,
            f"train {device} --out new --updates 1 --final-size 4 --model linear",
        )
    yield from _named(
        "spec is a fifo", (), lambda folder, rng: os.mkfifo(folder / "fifo"), "train fifo --out new"
    )
    yield from _named("spec of 300 MB", (), _sparse("spec.yaml", 300 << 20), "train spec.yaml --out new")
    yield from _named("run.json of 3 GB", runs, _sparse("run/run.json", 3 << 30), "runs", REPORT)

    for metadata in ("no json", "[]", '{"format": "x"}', '{"facts": 3}', "[" * DEEP):
        yield from _named(
            f"metadata {metadata[:20]}",
            ("run",),
            _metadata("run/model.safetensors", metadata),
            "load run",
            "export run --out new",
            "evaluate run --device cpu",
        )
    yield from _named(
        "renamed tensors", ("run",), _renamed("run/model.safetensors"), "export run --out new", "load run"
    )
    for kind in ("meta", "nan", "sparse", "expanded", "complex"):
        yield from _named(f".pt {kind}", ("weights.pt",), _tensors(kind), EVALUATE_FILE.format("weights.pt"))

    train = f"train --data {{}} {DATA} --out new"
    for name, spoil in _npz_mistakes().items():
        yield from _named(f"npz {name}", ("data.npz",), spoil, train.format("data.npz"))
    for name, spoil in _folder_mistakes().items():
        yield from _named(f"images {name}", ("images",), spoil, train.format("images"))
    for name, spoil in _archive_mistakes().items():
        target = "images.zip" if name.startswith("zip") else "cifar-10-batches-py.tar.gz"
        yield from _named(name, (target,), spoil, train.format(target))
    for option in (
        "--lr 1e308",
        "--lr nan",
        "--weight-decay 1e300",
        "--alpha 1e308",
        "--eps 1e308",
        "--momentum nan",
        "--coefficient 1e308",
        f"--updates {'9' * 27}",
        f"--batch-size {'9' * 27}",
        f"--train-size {'9' * 27}",
        f"--eval-size {'9' * 27}",
        f"--final-size {'9' * 27}",
        f"--eval-every {'9' * 27}",
        f"--epochs {'9' * 27}",
        f"--threads {'9' * 27}",
        f"--replay {'9' * 27}",
        f"--micro-batch {'9' * 27}",
        f"--image-size {'9' * 27}",
        f"--seed {'9' * 27}",
        f"--validation {'9' * 27}",
        "--epochs 1e308",
        "--model cnn-bn --batch-size 1",
        "--model resnet18-w1 --batch-size 1",
        "--model mlp-w99999999",
        f"--model mlp-w{'9' * 27}",
        "--algorithm vanilla-99999999999999999999999999",
        f"--attack pgd-{'9' * 27}",
        "--ema nan",
        "--ema 1e308",
        "--warmup nan",
        "--optimizer adamw --lr 1e38",
        "--model-args {",
        "--algorithm-args []",
        "--checkpoint-every nan",
        "--checkpoint-every -1e308",
        f"--normalize mean={DIGITS};std=1",
        "--normalize mean=0;std=0",
        "--eval-alpha 1e308",
        "--eval-eps 1e308",
    ):
        yield from _named("option", (), lambda folder, rng: None, f"{TRAIN} --out new {option}", writes=True)


def _made_special(name: str, special: Spoil) -> Callable[[Path, Random], None]:
    return lambda folder, rng: special(folder / name, rng)


def _into_folder(name: str) -> Callable[[Path, Random], None]:
    def spoil(folder: Path, rng: Random) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return spoil


def _sparse(name: str, size: int) -> Callable[[Path, Random], None]:
    def spoil(folder: Path, rng: Random) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(size)

    return spoil


def _metadata(name: str, text: str) -> Callable[[Path, Random], None]:
    def spoil(folder: Path, rng: Random) -> None:
        from safetensors.torch import load_file, save_file

        save_file(load_file(folder / name), folder / name, {"freeat": text})

    return spoil


def _renamed(name: str) -> Callable[[Path, Random], None]:
    def spoil(folder: Path, rng: Random) -> None:
        from safetensors.torch import load_file, save_file

        save_file({f"x.{key}": value for key, value in load_file(folder / name).items()}, folder / name)

    return spoil


def _tensors(kind: str) -> Callable[[Path, Random], None]:
    def spoil(folder: Path, rng: Random) -> None:
        import torch

        changes = {
            "meta": lambda v: v.to("meta"),
            "nan": lambda v: v * torch.nan,
            "sparse": lambda v: v.to_sparse(),
            "expanded": lambda v: torch.zeros(1).expand(2**40),
            "complex": lambda v: v.to(torch.complex64),
        }
        state = torch.load(folder / "weights.pt", weights_only=True)
        torch.save({name: changes[kind](value) for name, value in state.items()}, folder / "weights.pt")

    return spoil


def _npz_mistakes() -> dict[str, Callable[[Path, Random], None]]:
    def with_arrays(**changes: np.ndarray) -> Callable[[Path, Random], None]:
        def spoil(folder: Path, rng: Random) -> None:
            with np.load(folder / "data.npz") as stored:
                arrays = dict(stored)
            np.savez(folder / "data.npz", **{**arrays, **changes})

        return spoil

    def with_member(data: bytes, flags: int = 0) -> Callable[[Path, Random], None]:
        def spoil(folder: Path, rng: Random) -> None:
            with zipfile.ZipFile(folder / "data.npz") as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
            with zipfile.ZipFile(folder / "data.npz", "w") as archive:
                for name, content in (members | {"x_train.npy": data}).items():
                    archive.writestr(name, content)

        return spoil

    def bomb(folder: Path, rng: Random) -> None:
        """Three gigabytes of zeros in three megabytes."""
        with zipfile.ZipFile(folder / "data.npz") as archive:
            members = {name: archive.read(name) for name in archive.namelist() if name != "x_train.npy"}
        header = _npy_header(f"({(3 << 30) // 64}, 8, 8, 1)", "'|u1'")
        _zip_with_zeros(folder / "data.npz", members, "x_train.npy", header)

    return {
        "labels of 2^62": with_arrays(y_train=np.full(40, 2**62)),
        "labels of 2^31": with_arrays(y_train=np.full(40, 2**31)),
        "labels of 10^6": with_arrays(y_train=np.full(40, 10**6)),
        "petabytes": with_member(_npy_header("(1125899906842624, 8, 8, 1)", "'|u1'")),
        "no array": with_member(b"no array"),
        "empty member": with_member(b""),
        "objects": with_member(_npy_header("(40,)", "'|O'")),
        "zeros": bomb,
        "one label per pixel": with_arrays(y_train=np.zeros((40, 8, 8), int)),
        "images of 2^40 axes": with_member(_npy_header("(40, 0, 1099511627776, 1)", "'|u1'")),
    }


def _zip_with_zeros(path: Path, members: dict[str, bytes], name: str, start: bytes) -> None:
    """A zip archive with a member that unpacks to three gigabytes; its checksum is wrong."""
    deflate = zlib.compressobj(wbits=-15)
    data = deflate.compress(start) + deflate.flush(zlib.Z_FULL_FLUSH)
    block = deflate.compress(bytes(1 << 24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    data += block * 192 + deflate.flush()
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        archive.writestr(name, data)
    archived = bytearray(path.read_bytes())
    # The member is the last: its two headers say that it is deflated, and how long it is.
    for signature, method, size in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
        at = archived.rfind(signature)
        archived[at + method : at + method + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        archived[at + size : at + size + 4] = struct.pack("<I", len(start) + (192 << 24))
    path.write_bytes(archived)


def _npy_header(shape: str, kind: str) -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def _folder_mistakes() -> dict[str, Callable[[Path, Random], None]]:
    from freeat.data.synthetic import encoded

    def fifo(folder: Path, rng: Random) -> None:
        os.mkfifo(folder / "images/train/a/z.png")

    def device(folder: Path, rng: Random) -> None:
        (folder / "images/train/a/z.png").symlink_to("/dev/zero")

    def dangling(folder: Path, rng: Random) -> None:
        (folder / "images/train/a/z.png").symlink_to("nowhere")

    def loop(folder: Path, rng: Random) -> None:
        (folder / "images/train/loop").symlink_to("..")

    def other_encoding(folder: Path, rng: Random) -> None:
        for split in ("train", "test"):
            (folder / "images" / split / "a").rename(
                os.fsdecode(os.fsencode(folder / "images" / split) + b"/\xff\xfe")
            )

    def huge(folder: Path, rng: Random) -> None:
        png = bytearray(encoded(np.zeros((8, 8), np.uint8)))
        png[16:24] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
        (folder / "images/train/a/z.png").write_bytes(png)

    def wide(folder: Path, rng: Random) -> None:
        (folder / "images/train/a/z.png").write_bytes(encoded(np.zeros((6000, 8000), np.uint8)))

    return {
        "fifo": fifo,
        "device": device,
        "dangling": dangling,
        "loop": loop,
        "not UTF-8": other_encoding,
        "huge": huge,
        "wide": wide,
    }


def _archive_mistakes() -> dict[str, Callable[[Path, Random], None]]:
    from fuzz_mutations import zip_entry

    def zip_kind(kind: int) -> Callable[[Path, Random], None]:
        return lambda folder, rng: zip_entry(folder / "images.zip", _Fixed(kind))

    def zip_bomb(folder: Path, rng: Random) -> None:
        with zipfile.ZipFile(folder / "images.zip") as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        _zip_with_zeros(folder / "images.zip", members, "images/train/a/z.png", b"")

    def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> Callable[[Path, Random], None]:
        def spoil(folder: Path, rng: Random) -> None:
            with tarfile.open(folder / "cifar-10-batches-py.tar.gz", "w:gz", compresslevel=1) as archive:
                for info, data in members:
                    archive.addfile(info, io.BytesIO(data))

        return spoil

    def zeros(folder: Path, rng: Random) -> None:
        """A tar of four gigabytes of zeros."""
        info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        info.size = 4 << 30
        zeros = gzip.compress(bytes(1 << 24))
        (folder / "cifar-10-batches-py.tar.gz").write_bytes(gzip.compress(info.tobuf()) + zeros * 256)

    link = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return {
        "zip encrypted": zip_kind(0),
        "zip method 99": zip_kind(1),
        "zip sizes": zip_kind(2),
        "zip of zeros": zip_bomb,
        "tar link": tar_of((link, b"")),
        "tar of zeros": zeros,
    }


class _Fixed(Random):
    """Chooses one kind of mistake."""

    def __init__(self, kind: int) -> None:
        super().__init__(0)
        self.kind = kind

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return self.kind
