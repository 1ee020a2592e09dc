"""Formulas as MathML, which browsers typeset by themselves: the site needs neither network nor scripts for them."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
DIGITS_OF_FRACTION = re.compile(r"(\\[dt]?frac)(\d)(\d)")
"""``\\frac14`` is a quarter in TeX, but docutils reads the number 14."""


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(markup(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math-block">{markup(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def markup(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """The formula of a node; one that cannot be translated is a warning, and is shown as it was written."""
    try:
        return tex2mathml(DIGITS_OF_FRACTION.sub(r"\1{\2}{\3}", node.astext()), as_block=as_block)
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{node.astext()}</code>"
