"""The order of the layers: a folder is a layer, and imports point one way."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import freeat
from freeat.cli.main import COMMANDS

ROOT = Path(freeat.__file__).parent
FILES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}

LAYERS = (
    "errors", "units", "files", "rng", "threat", "objectives", "theory", "data", "models", "compute", "attacks",
    "learner", "algorithms", "evaluation", "training", "runs", "tasks", "stability", "experiments", "reports",
    "interop", "cli", "api",
)  # fmt: skip
"""The top of the package. A layer imports only layers that stand before it; imports inside functions count."""

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


def imported_layers(path: Path) -> set[str]:
    """The layers a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("freeat.")}


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_the_top_of_the_package_holds_the_layers_and_nothing_else() -> None:
    names = {path.name.removesuffix(".py") for path in ROOT.iterdir() if not path.name.startswith("__")}
    assert names - {"py.typed"} == set(LAYERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_layers_listed_before_it(layer: str) -> None:
    allowed = {*LAYERS[: LAYERS.index(layer) + 1]}
    for path in FILES.values():
        if layer_of(path) == layer:
            assert imported_layers(path) <= allowed, path


def test_theory_imports_errors_only_and_no_torch() -> None:
    members = [path for path in FILES.values() if layer_of(path) == "theory"]
    assert len(members) > 3
    for path in members:
        assert not {name.split(".")[0] for name in imports(path)} & {"torch", "numpy", "scipy"}, path
        assert imported_layers(path) <= {"theory", "errors"}, path


def test_importing_the_package_imports_no_torch() -> None:
    reached, waiting = set(), ["__init__", "cli.main", "errors", "runs.spec", "units"]
    while waiting:
        module = waiting.pop()
        if module in reached or module not in FILES:
            continue
        reached.add(module)
        names = set(imports(FILES[module], at_import=True))
        assert not any(name.split(".")[0] == "torch" for name in names), module
        waiting += [name.removeprefix("freeat.") for name in names if name.startswith("freeat.")]


def test_no_two_classes_share_a_name() -> None:
    trees = {module: ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for module, path in FILES.items()}
    classes = [
        (node.name, module)
        for module, tree in trees.items()
        for node in tree
        if isinstance(node, ast.ClassDef)
    ]
    names = [name for name, _ in classes]
    assert [one for one in classes if names.count(one[0]) > 1] == []


def test_the_architecture_page_names_every_module() -> None:
    """By its path, or by its name in the row of its layer; a command's module has the name of the command."""
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {
        line.split("`")[1].strip("/").removesuffix(".py"): line
        for line in page.splitlines()
        if line[:3] == "| `"
    }
    missing = [
        module
        for module, path in FILES.items()
        if not path.name.startswith("__")
        and not (path.parent.name == "cli" and path.stem in COMMANDS)
        and str(path.relative_to(ROOT).as_posix()) not in page
        and f"`{path.stem}`" not in rows[layer_of(path)]
        and f"`{path.name}`" not in page
        and f"`{module}" not in page
    ]
    assert missing == [], "name them in docs/architecture.md"


MOST_MODULES = 65
TRAIN = """
import sys
from freeat.cli.main import run
assert run(sys.argv[1:]) == 0
assert not {"torch._dynamo", "torch._inductor"} & sys.modules.keys(), "the compiler takes seconds to import"
print(*(name for name in sys.modules if name.split(".")[0] == "freeat"))
"""


def test_training_imports_only_what_it_uses(tmp_path: Path) -> None:
    command = [
        "train",
        "--data",
        "digits",
        "--model",
        "mlp",
        "--updates",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run([sys.executable, "-c", TRAIN, *command], capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert "freeat.runs.run" in modules
    assert len(modules) <= MOST_MODULES, modules


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
    """Models are initialized from torch's generator, which ``models.registry`` forks."""
    allowed = {"models.registry", "models.imported"}
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


def test_imports_are_found() -> None:
    assert {"runs", "compute", "files", "training"} <= imported_layers(FILES["runs.run"])
    assert "torch" in imports(FILES["runs.run"], at_import=True)
    assert not {"freeat.runs.run"} & set(imports(FILES["cli.train"], at_import=True))
    assert "freeat.runs.run" in imports(FILES["cli.train"])
