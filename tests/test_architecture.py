"""The order of the rooms: data flows one way, and a room knows only those behind it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import freeat

ROOT = Path(freeat.__file__).parent
FILES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}

COMMAND_LINE = {"cli", "commands", "__main__"}
RUN_SIDE = {
    "spec", "store", "run", "assembly", "fitting", "judgement", "checkpoints", "snapshot", "initial", "machine",
    "opening", "api", "experiments", "reports", "watching",
}  # fmt: skip
JUDGED_BEFORE = {"store", "run", "experiments.tasks", "experiments.engine", "reports"}
"""Claims are judged on a document; where its numbers came from is behind them."""

WHAT_IS_RUN = {"experiments.paper", "experiments.comparison", "experiments.inventory", "reports"}
"""An engine knows a task by its protocol alone."""

FORBIDDEN: dict[str, set[str]] = {
    "learner": RUN_SIDE,
    "averaging": RUN_SIDE,
    "precision": RUN_SIDE,
    "schedules": RUN_SIDE,
    "streams": RUN_SIDE,
    "world": RUN_SIDE,
    "threat": RUN_SIDE,
    "objectives": RUN_SIDE,
    "algorithms": RUN_SIDE,
    "models": RUN_SIDE - {"checkpoints"},
    "data": RUN_SIDE,
    "training": RUN_SIDE,
    "batches": RUN_SIDE,
    "evaluation": RUN_SIDE,
    "judging": RUN_SIDE,
    "generalization": RUN_SIDE,
    "attacks.pgd": RUN_SIDE,
    "attacks.square": RUN_SIDE,
    "attacks.ascent": RUN_SIDE,
    "attacks.autoattack": RUN_SIDE,
    "files": RUN_SIDE,
    "lease": RUN_SIDE,
    "checkpoints": RUN_SIDE - {"checkpoints"},
    "snapshot": RUN_SIDE,
    "spec": RUN_SIDE - {"spec"} | {"learner", "training"},
    "spec_file": RUN_SIDE,
    "judged_batches": RUN_SIDE,
    "arguments": RUN_SIDE,
    "store": {"run", "assembly", "fitting", "judgement", "experiments", "reports", "learner", "training"},
    "fitting": {"spec", "run", "assembly", "judgement", "experiments", "reports"},
    "assembly": {"run", "experiments", "reports"},
    "run": {"experiments", "reports"},
    "extras": RUN_SIDE,
    "doctor": RUN_SIDE - {"machine"},
    "tracking": {"run", "assembly", "fitting", "learner", "training", "experiments", "reports"},
    "shipping": {"run", "assembly", "fitting", "judgement", "learner", "training", "experiments"},
    "shipping.bundle": RUN_SIDE - {"checkpoints", "spec"},
    "references": RUN_SIDE - {"store"},
    "titles": RUN_SIDE,
    "experiments.reading": RUN_SIDE,
    "experiments.tasks": {"experiments.engine", "experiments.engines", *WHAT_IS_RUN},
    "experiments.engine": {"spec", "store", "run", "experiments.engines", *WHAT_IS_RUN},
    "experiments.engines": {"spec", "store", "run", *WHAT_IS_RUN},
    "reports": {"training", "fitting", "run", "assembly", "learner", "experiments"},
    "reports.html": {
        "attacks.pgd",
        "attacks.measurement",
        "evaluation",
        "judging",
        "judgement",
        "models",
        "data",
    },
    "experiments.paper.published": RUN_SIDE,
    "experiments.paper.estimate": RUN_SIDE,
    "experiments.paper.evidence": JUDGED_BEFORE,
    "experiments.paper.findings": JUDGED_BEFORE,
    "experiments.paper.table_claims": JUDGED_BEFORE,
    "experiments.paper.figure_claims": JUDGED_BEFORE,
    "experiments.paper.ledger": JUDGED_BEFORE,
    "experiments.paper.sufficiency": JUDGED_BEFORE,
}
"""What a room must not import. Nothing but the command line imports the command line."""

POSIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "crypt"}


def imports(path: Path, *, at_import: bool = False) -> Iterator[str]:
    """The modules a file imports, ours as ``freeat.x.y``; only those of the module level if asked."""
    for node in _nodes(ast.parse(path.read_text(encoding="utf-8")), at_import):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _nodes(tree: ast.AST, at_import: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if at_import and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _nodes(node, at_import)


def rooms(path: Path) -> set[str]:
    """Our modules a file imports, without the package's name, and their packages."""
    found = {name.removeprefix("freeat.") for name in imports(path) if name.startswith("freeat.")}
    return {".".join(name.split(".")[: k + 1]) for name in found for k in range(name.count(".") + 1)}


def belongs(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_knows_only_those_behind_it(room: str) -> None:
    members = {module: path for module, path in FILES.items() if belongs(module, room)}
    assert members, f"no module {room}: mend the table"
    for module, path in members.items():
        assert not rooms(path) & FORBIDDEN[room], module


def test_only_the_command_line_knows_the_command_line() -> None:
    for module, path in FILES.items():
        if module.split(".")[0] not in COMMAND_LINE:
            assert not rooms(path) & COMMAND_LINE, module


def test_the_theory_stands_alone() -> None:
    members = [path for module, path in FILES.items() if belongs(module, "theory")]
    assert len(members) > 3
    for path in members:
        outside = {name.split(".")[0] for name in imports(path)} - {"freeat"}
        assert not outside & {"torch", "numpy", "scipy"}, path
        assert all(room.startswith(("theory", "errors")) for room in rooms(path)), path


def test_importing_the_package_imports_no_torch() -> None:
    reached, waiting = set(), ["__init__", "cli", "errors", "spec", "units"]
    while waiting:
        module = waiting.pop()
        if module in reached or module not in FILES:
            continue
        reached.add(module)
        names = set(imports(FILES[module], at_import=True))
        assert not any(name.split(".")[0] == "torch" for name in names), module
        waiting += [name.removeprefix("freeat.") for name in names if name.startswith("freeat.")]


@pytest.mark.parametrize("module", FILES)
def test_every_module_imports_everywhere_and_prints_nothing(module: str) -> None:
    path = FILES[module]
    assert not {name.split(".")[0] for name in imports(path, at_import=True)} & POSIX_ONLY
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "breakpoint", "eval", "exec"), f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert ast.unparse(node.func) not in ("pickle.load", "pickle.loads", "yaml.load"), (
                f"line {node.lineno}"
            )


def test_nothing_reads_a_global_generator() -> None:
    """Models are initialized from torch's generator, which ``models.build`` lends and gives back."""
    allowed = {"models.build", "models.imported"}
    for module, path in FILES.items():
        if module in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            assert name not in ("torch.manual_seed", "random.random", "random.shuffle", "np.random.seed"), (
                module
            )
            draws = ("torch.rand", "torch.randn", "torch.randint", "torch.randperm", "torch.rand_like")
            if name in draws or name == "torch.randn_like":
                assert any(keyword.arg == "generator" for keyword in node.keywords), (
                    f"{module}: {node.lineno}"
                )


def test_the_reader_of_imports_reads_them() -> None:
    assert {"store", "assembly", "spec", "world"} <= rooms(FILES["run"])
    assert "torch" in imports(FILES["run"], at_import=True)
    assert not {"freeat.runs.run"} & set(imports(FILES["commands.train"], at_import=True))
    assert "freeat.runs.run" in imports(FILES["commands.train"])
