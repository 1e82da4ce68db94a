"""Navigation of the site: its tabs and pages, and the first sentence of each page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["DOCS", "Page", "Section", "first_sentence", "read_navigation", "title_of"]

DOCS = Path(__file__).resolve().parent
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NO_PROSE = ("#", "|", "```", "!", "<", ":::", "-", "*", "    ")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.:])(?=\s+(?:[A-Z`*]|$))")


class _Loader(yaml.SafeLoader):
    """Loader that reads the tags of mkdocs as nothing."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


@dataclass(frozen=True)
class Page:
    """A page: its path below ``docs``, title, and first sentence."""

    path: str

    @property
    def text(self) -> str:
        """Markdown of the page, without its front matter."""
        return re.sub(r"\A---\n.*?^---\n", "", (DOCS / self.path).read_text(encoding="utf-8"), flags=re.DOTALL | re.M)

    @property
    def title(self) -> str:
        """First heading."""
        return title_of(self.text)

    @property
    def summary(self) -> str:
        """First sentence of the prose."""
        return first_sentence(self.text)


@dataclass(frozen=True)
class Section:
    """A tab, or a group of pages in it."""

    title: str
    entries: list[Page | Section] = field(default_factory=list)

    def own_pages(self) -> list[Page]:
        """Return the pages that are in no group."""
        return [entry for entry in self.entries if isinstance(entry, Page)]

    def groups(self) -> list[Section]:
        """Return the groups."""
        return [entry for entry in self.entries if isinstance(entry, Section)]

    def pages(self) -> Iterator[Page]:
        """Yield the pages of the section and of its groups, in their order."""
        for entry in self.entries:
            if isinstance(entry, Page):
                yield entry
            else:
                yield from entry.pages()


def read_navigation(settings: Path = DOCS.parent / "mkdocs.yml") -> Section:
    """Return the navigation of ``mkdocs.yml`` as a section whose entries are the tabs."""
    return _section("", yaml.load(settings.read_text(encoding="utf-8"), _Loader)["nav"])  # noqa: S506 - a SafeLoader


def _section(title: str, entries: list[Any]) -> Section:
    found: list[Page | Section] = []
    for entry in entries:
        if isinstance(entry, str):
            found.append(Page(entry))
        else:
            found += [_section(name, content) for name, content in entry.items()]
    return Section(title, found)


def title_of(text: str) -> str:
    """Return the text of the first heading."""
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    if heading is None:
        raise ValueError("the page has no heading: start it with '# TITLE'")
    return heading[1]


def first_sentence(text: str) -> str:
    """Return the first sentence after the heading, with the text of links instead of links."""
    body = re.split(r"^# .+$", _COMMENT.sub("", text), maxsplit=1, flags=re.MULTILINE)[-1]
    for paragraph in body.split("\n\n"):
        prose = " ".join(paragraph.split())
        if prose and not paragraph.lstrip("\n").startswith(_NO_PROSE):
            return _END.split(_LINK.sub(r"\1", prose))[0].rstrip(":").strip()
    raise ValueError("the page has no prose: start it with a sentence about the reader's task")
