"""The Markdown pages, and the blocks in them that are marked to be run.

A comment on the line before a fence marks a block:

    <!-- run -->            Python: one script per page, in order; shell: a command of its own
    <!-- run: flink -->     Python that needs a mini cluster: a script of its own
    <!-- file: NAME -->     written to the folder in which the page runs
    <!-- output -->         what the block before prints on stdout
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"^<!-- (run|file|output)(?:: ([\w.-]+))? -->\n(?P<fence>```+)(\w*)[^\n]*\n(.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"^<!-- (?:run|file|output)\b.*-->$", re.MULTILINE)
_FENCED = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
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


def links_of(page: Path) -> list[str]:
    """Targets of the links outside of code."""
    return _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))


def yaml_of(page: Path) -> list[str]:
    """The texts of all YAML blocks, marked or not."""
    return _YAML.findall(page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """The anchors that headings get."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
