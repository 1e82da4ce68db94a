"""Skills made of the project's own texts: the skills of the checkout, and sections of its documentation."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import business_tools
from flink_skills.skill import load_folder

ROOT = Path(__file__).resolve().parent.parent
_OWN = ROOT / "skills"
_TEXTS = ("docs/*.md", "docs/reference/*.md", "skills/*/references/*.md", "*.md")
# The table of features is generated, and one long table.
_LEFT_OUT = ("features.md",)
_SHORTEST, _MAX_LENGTH = 1_800, 3_200
_MAX_DESCRIPTION_LENGTH = 320
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_HEADING = re.compile(r"#{1,3} (.+)")


@dataclass(frozen=True)
class Text:
    """A skill to be: ``folder`` is where the files of one of the checkout's are."""

    name: str
    description: str
    body: str
    folder: Path | None = None

    @property
    def subject(self) -> str:
        """What its tools are about."""
        return self.name.replace("-", "_")


@functools.cache
def texts(count: int) -> tuple[Text, ...]:
    """``count`` skills: the checkout's own first, then sections from all over the documentation."""
    found = [_own(folder) for folder in sorted(_OWN.iterdir()) if (folder / "SKILL.md").is_file()][:count]
    sections = list(_sections())
    wanted = count - len(found)
    if wanted > len(sections):
        raise SystemExit(f"the documentation makes {len(sections)} skills, and {wanted} are asked for")
    return (*found, *(sections[number * len(sections) // wanted] for number in range(wanted)))


def write(folder: Path, chosen: Sequence[Text], tools: int) -> None:
    """The skills below ``folder``, each with the names of ``tools`` tools."""
    for text in chosen:
        home = folder / text.name
        if text.folder is not None:
            shutil.copytree(text.folder, home, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            home.mkdir(parents=True)
        heading, _, rest = text.body.partition("\n")
        names = "".join(f"- {name}\n" for name in business_tools.names(text.subject, tools))
        section = f"\nTools:\n{names}" if names else ""
        (home / "SKILL.md").write_text(
            f"---\nname: {text.name}\ndescription: {_quoted(text.description)}\n---\n\n{heading}\n{section}{rest}"
        )


def _own(folder: Path) -> Text:
    skill = load_folder(str(folder)).skill
    if skill is None:
        raise SystemExit(f"{folder} is no skill")
    return Text(skill.name, skill.description, skill.instructions.strip() + "\n", folder)


def _sections() -> Iterator[Text]:
    names: set[str] = set()
    for pattern in _TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            if path.name in _LEFT_OUT:
                continue
            for title, body in _pieces(_COMMENT.sub("", path.read_text())):
                name = _name(f"{path.stem} {title}", names)
                yield Text(name, _description(title, body), f"# {title}\n\n{body}\n")


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Title and text from each heading of a document on, as long as bodies of skills are; they overlap."""
    blocks: list[tuple[str, str]] = []
    fenced = False
    for block in re.split(r"\n\s*\n", text):
        heading = None if fenced else _HEADING.match(block)
        title = heading[1].strip("` ") if heading else ""
        blocks.append((title, _HEADING.sub("", block, count=1).strip() if title else block))
        fenced ^= block.count("```") % 2 == 1
    for number, (title, _) in enumerate(blocks):
        if not title:
            continue
        piece = ""
        for later, block in blocks[number:]:
            heading_line = f"## {later}\n\n" if piece and later else ""
            if len(piece) + len(block) > _MAX_LENGTH and len(piece) >= _SHORTEST:
                break
            piece += f"{heading_line}{block}\n\n" if block else heading_line
        if len(piece) >= _SHORTEST:
            yield title, piece.strip()


def _name(text: str, names: set[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:36].strip("-")
    name = next(name for name in (slug, *(f"{slug}-{n}" for n in range(2, 99))) if name not in names)
    names.add(name)
    return name


def _description(title: str, body: str) -> str:
    """The beginning of the prose, as far as it fits."""
    plain = (text for text in _paragraphs(body) if len(text) > 60 and "```" not in text and text[0] not in "-*|<#=0123")
    prose = next(plain, body.partition("\n")[0])
    text = f"{title}: {prose}"
    cut = text if len(text) <= _MAX_DESCRIPTION_LENGTH else text[:_MAX_DESCRIPTION_LENGTH].rsplit(" ", 1)[0] + " …"
    return f"{cut} Use when a question is about this."


def _paragraphs(body: str) -> list[str]:
    return [" ".join(block.split()) for block in body.split("\n\n") if block.strip()]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
