"""Pages outside the reference have at most 1,500 words."""

from __future__ import annotations

import re

import pytest

from tests.docs.navigation import pages_of, read_navigation
from tests.docs.pages import ROOT

MAX_WORDS = 1_500
# Lists of evidence: one entry for each guarantee or feature, with its tests.
LISTS = {"guarantees.md", "features.md"}
_BLOCK = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_ADDRESS = re.compile(r"\]\([^)]*\)|https?://\S+")


def guides() -> list[str]:
    """Return the pages of all sections except the reference."""
    sections = [entry for entry in read_navigation() if not (isinstance(entry, dict) and "Reference" in entry)]
    return sorted(set(pages_of(sections)) - LISTS)


def words_in(text: str) -> int:
    """Return the number of words outside blocks of code, addresses and generated tables. Code in a line is one word."""
    for pattern in (_GENERATED, _BLOCK, _ADDRESS):
        text = pattern.sub(" ", text)
    text = _CODE.sub("X", text)
    return len(re.findall(r"[A-Za-z']+", text))


@pytest.mark.parametrize("name", guides())
def test_a_guide_is_short(name: str) -> None:
    words = words_in((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert words <= MAX_WORDS, f"docs/{name} has {words} words: split it, or move its tables to docs/reference"


def test_words_of_prose_are_counted() -> None:
    assert "sources.md" in guides()
    assert not {"attacks.md", "reference/options.md"} & set(guides())
    assert words_in("# A page\n\nRun `the command` of [this page](other-page.md):\n\n```bash\nls all\n```\n") == 7
    assert words_in("one\n<!-- generated: x -->\n| two |\n<!-- end -->\nthree\n") == 2
