"""The Markdown pages, and the blocks in them that are marked to be run.

A comment on the line before a fence marks a block:

    <!-- run -->            Python: one script per page, in order; shell: a command of its own
    <!-- run: flink -->     Python that needs a mini cluster: a script of its own
    <!-- run: kafka -->     needs a broker, see walk.py; so do the other words of the tutorial (test_tutorial.py)
    <!-- file: NAME -->     written to the folder in which the page runs
    <!-- output -->         what the block before prints on stdout
    <!-- not run: WHY -->   a block that nothing here can run; the reasons are in test_blocks.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"^<!-- (run|file|output)(?:: ([\w./-]+))? -->\n(?P<fence>```+)(\w*)[^\n]*\n(.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"^<!-- (?:run|file|output)\b.*-->$", re.MULTILINE)
_FENCED = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>[\w-]*)(?P<more>[^`\n]*)$")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """A marked block. ``kind`` is run or file, ``argument`` what stands behind the colon."""

    kind: str
    argument: str
    language: str
    text: str
    output: str | None = None


def all_pages() -> list[Path]:
    """Every page that people read: those at the root, the documentation, and the folders' READMEs."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy/README.md", ROOT / "skills/README.md"]
    return sorted(found)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """The marked blocks in order; outputs are attached to the block before them."""
    text = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    matches = list(_BLOCK.finditer(text))
    if len(matches) != len(_MARK.findall(text)):
        raise ValueError(f"{name_of(page)}: a mark is not directly above a fenced block")
    for match in matches:
        kind, argument, _, language, body = match.groups()
        if kind == "output":
            blocks[-1].output = body
        else:
            blocks.append(Block(kind, argument or "", language, body))
    return blocks


@dataclass(frozen=True)
class Fence:
    """Any fenced block: the line above it, its language, its text, and the number of its first line."""

    above: str
    language: str
    text: str
    line: int


def fences_of(page: Path) -> list[Fence]:
    """All fenced blocks at the beginning of a line, marked or not."""
    found: list[Fence] = []
    lines = page.read_text(encoding="utf-8").split("\n")
    opened: tuple[str, str, int] | None = None
    for number, line in enumerate(lines):
        if opened is None:
            if match := _FENCE.match(line):
                opened = (match["fence"], match["language"], number)
        elif line.rstrip() == opened[0]:
            _, language, first = opened
            above = lines[first - 1] if first else ""
            found.append(Fence(above, language, "\n".join(lines[first + 1 : number]) + "\n", first + 2))
            opened = None
    return found


def links_of(page: Path) -> list[str]:
    """Targets of the links outside of code."""
    return _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))


def yaml_of(page: Path) -> list[str]:
    """The texts of all YAML blocks, marked or not."""
    return _YAML.findall(page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the page: those of its headings, and the explicit ones."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    of_headings = (
        re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in _HEADING.findall(text)
    )
    return {*of_headings, *_ANCHOR.findall(text)}
