"""Every number on the theory page is what the code prints."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"


def test_the_examples_of_the_theory_page() -> None:
    blocks = re.findall(r"^```pycon\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    page = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    outcome = doctest.DocTestRunner().run(page, out=said.append)
    assert outcome.attempted > 20
    assert outcome.failed == 0, "".join(said)
