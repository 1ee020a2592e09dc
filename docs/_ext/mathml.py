"""Formulas as MathML, which browsers typeset by themselves: the site needs neither network nor scripts for them.

docutils translates; what its translation lacks of TeX's habits is mended before and after it.
"""

import html
import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

TEX = [
    # \frac14 is a quarter, not a fraction of the number 14
    (re.compile(r"(\\[dt]?frac)(\d)(\d)"), r"\1{\2}{\3}"),
    # an index of an accented letter stands beside it, not under it
    (re.compile(r"(\\(?:tilde|hat|bar)\s*(?:\{[^{}]*\}|\\?[a-zA-Z]+))_"), r"\1^{}_"),
]
MATHML = [
    # bars of norms and absolute values keep the size of a letter, on both sides
    (re.compile(r'<mo class="mathopen">([‖|])</mo>'), r'<mo form="prefix" stretchy="false">\1</mo>'),
    (re.compile(r"<mo>([‖|])</mo>"), r'<mo form="postfix" stretchy="false">\1</mo>'),
    # log x, but log(x)
    (re.compile(r"(<mo>&ApplyFunction;</mo>)(?!\s*<mo[^>]*>\()"), r'\1<mspace width="0.17em"></mspace>'),
]


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
        return mended(tex2mathml(mended(node.astext(), TEX), as_block=as_block), MATHML)
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{html.escape(node.astext())}</code>"


def mended(text: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
