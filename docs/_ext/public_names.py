"""``public-names``: the reference of a package, made from its ``__all__``, so that no public name is left out.

The names of ``freeat`` itself come in groups, one for each room they live in. In the reference of a room those
that are public in ``freeat`` are not described a second time.
"""

import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import freeat


class PublicNames(SphinxDirective):
    """Describe every name in the ``__all__`` of a module; ``freeat``'s under a heading for each room."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        names = importlib.import_module(module).__all__
        if module == "freeat":
            lines = by_room(names)
        else:
            lines = descriptions(module, [name for name in names if name not in freeat.__all__])
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def by_room(names: Iterable[str]) -> Iterator[str]:
    """The public names of ``freeat``, each under the first line of the docstring of the room it lives in."""
    rooms: dict[str, list[str]] = {}
    for name in names:
        room = ".".join(getattr(freeat, name).__module__.split(".")[:2])
        rooms.setdefault(room, []).append(name)
    for room in sorted(rooms, key=lambda room: (room != "freeat.api", room)):
        title = "In a few lines" if room == "freeat.api" else room.removeprefix("freeat.").capitalize()
        about = inspect.getdoc(importlib.import_module(room)) or ""
        yield from (title, "=" * len(title), "", about.splitlines()[0], "")
        yield from descriptions("freeat", rooms[room])


def descriptions(module: str, names: Iterable[str]) -> Iterator[str]:
    """Directives of autodoc, one for each name."""
    for name in names:
        value = getattr(importlib.import_module(module), name)
        kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
        yield f".. auto{kind}:: {home_of_data(module, name) if kind == 'data' else module}.{name}"
        if kind == "data":
            yield "   :no-value:"
        if kind == "class":
            yield "   :members:"
        if is_protocol(value):
            yield "   :undoc-members:"
        yield ""


def home_of_data(package: str, name: str) -> str:
    """The module that holds the text below a constant, where autodoc looks for it."""
    modules = (module for module in sorted(sys.modules) if module.startswith(f"{package}."))
    return next(m for m in modules if ("", name) in ModuleAnalyzer.for_module(m).find_attr_docs())


def is_protocol(value: object) -> bool:
    return getattr(value, "_is_protocol", False)


def without_constructor(
    app: Sphinx, kind: str, name: str, value: object, options: object, args: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """A protocol is never called, so its description shows no arguments."""
    return ("", None) if is_protocol(value) else (args, result)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-process-signature", without_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
