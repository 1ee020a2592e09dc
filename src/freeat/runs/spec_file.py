"""Settings from a YAML file: read without executing anything, every mistake named with its line."""

from pathlib import Path
from typing import Any

import yaml

from freeat.errors import InputError

LAYOUT = "write one `setting: value` per line"


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings of a YAML file by name; ``batch-size`` and ``batch_size`` are one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path} is not YAML, line {line}: no UTF-8 text; save it as UTF-8") from None
    try:
        words = _construct(path, yaml.SafeLoader(text))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML, {_described(error, text)}; {LAYOUT}") from None
    if not isinstance(words, dict):
        raise InputError(f"{path} holds a {type(words).__name__}, not settings: {LAYOUT}")
    return {setting_name(name): value for name, value in words.items()}


def setting_name(written: object) -> str:
    """A setting's name as the specs spell it."""
    return str(written).replace("-", "_")


def _construct(path: Path, loader: yaml.SafeLoader) -> Any:
    try:
        root = loader.get_single_node()
        if root is None:
            return {}
        _refuse_twice(path, root)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _refuse_twice(path: Path, node: yaml.Node) -> None:
    """Refuse a key that a mapping holds twice, of which YAML would silently take the last."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = setting_name(key.value), key.start_mark.line + 1
            if name in lines:
                raise InputError(
                    f"{path}, line {line}: {key.value!r} is given again, after line {lines[name]}; keep one of them"
                )
            lines[name] = line
            _refuse_twice(path, value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_twice(path, item)


def _described(error: yaml.YAMLError, text: str) -> str:
    """The line of a mistake and what it is."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        return f"line {line}: {error.problem or error.context}"
    position = getattr(error, "position", 0)  # a character that YAML forbids
    return f"line {text[:position].count(chr(10)) + 1}: {getattr(error, 'reason', error)}"
