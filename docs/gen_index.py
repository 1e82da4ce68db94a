"""Write the lists of pages in the index pages of the site from the navigation in ``mkdocs.yml``.

python -m docs.gen_index           write the lists
python -m docs.gen_index --check   exit with 1 if they differ from the navigation

``index.md`` gets all pages, and the ``index.md`` of a tab the pages of the tab with their first sentences.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterable, Iterator

from docs.generated import fill, write_or_check
from docs.navigation import DOCS, Page, Section, read_navigation

__all__ = ["main", "render"]

START = "index.md"


def render(path: str, page: str, navigation: Section) -> str:
    """Return the text of an index page with a current list."""
    if path == START:
        return fill(page, {"index": lambda: "\n".join(_all_pages(navigation))})
    (tab,) = (tab for tab in navigation.groups() if Page(path) in tab.entries)
    return fill(page, {"index": lambda: "\n\n".join(_tab(tab, path))})


def _all_pages(navigation: Section) -> Iterator[str]:
    yield "| Subject | Pages |"
    yield "|---|---|"
    for tab in navigation.groups():
        first, *others = tab.own_pages()
        title = f"**{tab.title}**" if first.path == START else f"[**{tab.title}**]({first.path})"
        for group in (Section(title, [*others]), *tab.groups()):
            yield f"| {group.title} | {', '.join(f'[{page.title}]({page.path})' for page in group.pages())} |"


def _tab(tab: Section, path: str) -> Iterator[str]:
    if others := [page for page in tab.own_pages() if page.path != path]:
        yield _list(others, path)
    for group in tab.groups():
        yield f"## {group.title}"
        yield _list(group.pages(), path)


def _list(pages: Iterable[Page], path: str) -> str:
    folder = posixpath.dirname(path)
    return "\n".join(f"- [{page.title}]({posixpath.relpath(page.path, folder)}): {page.summary}" for page in pages)


def main(arguments: list[str]) -> int:
    """Write or check the lists, and return the exit code."""
    navigation = read_navigation()
    indexes = [page.path for page in navigation.pages() if posixpath.basename(page.path) == START]
    return max(
        write_or_check(DOCS / path, lambda page, path=path: render(path, page, navigation), arguments)  # type: ignore[misc]
        for path in indexes
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
