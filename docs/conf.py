"""The documentation site: ``make docs`` builds it from the repository's own Markdown.

Sphinx reads from the root of the repository, not from this folder, so that one and the same relative link works in
the repository and in the site, also where it leads to ``results/`` or to the changelog.
"""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from freeat import __version__  # noqa: E402

project = "freeat"
author = "The freeat authors"
copyright = "2026, the freeat authors"
version = release = __version__

root_doc = "docs/index"
include_patterns = ["docs/**.md", "results/**.md", "examples/*.ipynb", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = ["docs/_build", "**/.*", "src", "tests", "demo", "runs"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "mathml",
    "public_names",
]

nb_execution_mode = "off"  # notebooks show their stored outputs; the tests execute them

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
viewcode_line_numbers = True

html_theme = "furo"
html_title = f"freeat {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}
html_math_renderer = "mathml"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "versions.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"


def setup(app: Sphinx) -> None:
    app.connect("sphinx-click-process-description", show_signs_as_written)
    app.connect("doctree-read", leave_generated_results_out_of_lists)


def show_signs_as_written(app: Sphinx, context: Any, lines: list[str]) -> None:
    """``NETWORK@FILE`` in a command's help is no e-mail address."""
    lines[:] = [line.replace("@", "\\@") for line in lines]


def leave_generated_results_out_of_lists(app: Sphinx, doctree: nodes.document) -> None:
    """Tables and claims of a reproduction are reached from its README, not from the sidebar."""
    name = app.env.docname
    if name.startswith("results/") and not name.endswith("/README"):
        app.env.metadata[name]["orphan"] = "yes"
