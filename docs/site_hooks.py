"""Hooks of mkdocs: pages as Markdown, ``llms.txt``, descriptions of pages, redirects, and guarantees without tests.

``mkdocs.yml`` names this file. Run ``python -m mkdocs`` in the checkout, so that Python finds the package ``docs``.
"""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docs.docstring_roles import without_roles
from docs.navigation import DOCS, Page, Section, first_sentence, read_navigation

__all__ = [
    "MOVED",
    "address_of",
    "as_markdown",
    "llms_txt",
    "on_page_markdown",
    "on_post_build",
    "redirect",
    "without_tests",
]

#: Pages that moved: old path below ``docs``, and the new path with an optional heading.
MOVED: dict[str, str] = yaml.safe_load((DOCS / "moved.yaml").read_text(encoding="utf-8"))
_GUARANTEES = "guarantees.md"
_GUARANTEE = re.compile(r"^\| (.+) \| .+ \|$", re.MULTILINE)
_HEAD_OF_GUARANTEES = "| guarantee | tests |\n|---|---|\n"
_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
_REDIRECT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page moved</title>
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url={target}">
<p>This page moved: <a href="{target}">{target}</a></p>
</html>
"""


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the Markdown to show, and give the page the description for search engines: its first sentence."""
    page.meta.setdefault("description", first_sentence(markdown))
    return without_tests(markdown) if page.file.src_uri == _GUARANTEES else markdown


def on_post_build(*, config: Any) -> None:
    """Write the Markdown of all pages, ``llms.txt`` and the redirects."""
    site = Path(config.site_dir)
    navigation = read_navigation()
    for page in navigation.pages():
        _write(site / page.path, as_markdown(page))
    _write(site / "llms.txt", llms_txt(navigation, config.site_name, config.site_description))
    for old, new in MOVED.items():
        _write(site / address_of(old) / "index.html", redirect(old, new))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def address_of(path: str) -> str:
    """Return the directory of a page in the site.

    >>> address_of("reference/cli.md"), address_of("operate/index.md"), address_of("index.md")
    ('reference/cli/', 'operate/', '')
    """
    stem = path.removesuffix(".md")
    return "" if stem == "index" else f"{stem.removesuffix('/index')}/"


def redirect(old: str, new: str) -> str:
    """Return the HTML that leads from the address of ``old`` to ``new``."""
    path, _, heading = new.partition("#")
    target = posixpath.relpath(address_of(path) or ".", address_of(old)) + "/"
    return _REDIRECT.format(target=f"{target}#{heading}" if heading else target)


def without_tests(markdown: str) -> str:
    """Return the page of guarantees as lists of sentences, without the column of tests.

    >>> without_tests("| guarantee | tests |\\n|---|---|\\n| Order | `a::b`, `c::d` |\\n")
    '- Order\\n'
    """
    return _GUARANTEE.sub(r"- \1", markdown.replace(_HEAD_OF_GUARANTEES, "")).replace("\\|", "|")


def as_markdown(page: Page) -> str:
    """Return the Markdown of a page, with signatures and docstrings for the entries of the API."""
    text = without_tests(page.text) if page.path == _GUARANTEES else page.text
    return _DIRECTIVE.sub(lambda match: "\n\n".join(_described(match[1])), text)


def _described(name: str) -> Iterator[str]:
    target = pkgutil.resolve_name(name)
    yield f"### `{name.removeprefix('flink_skills.')}`"
    yield from _signature(name.rpartition(".")[2], target)
    if inspect.isclass(target):
        for member, value in vars(target).items():
            if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                yield f"#### `{target.__name__}.{member}`"
                yield from _signature(member, getattr(target, member))


def _signature(name: str, target: Any) -> Iterator[str]:
    if callable(target):
        with contextlib.suppress(ValueError):  # A builtin has no signature.
            yield f"```python\n{name}{inspect.signature(target)}\n```"
    if text := inspect.getdoc(target):
        yield without_roles(text)


def llms_txt(navigation: Section, name: str, description: str) -> str:
    """Return the list of all pages in the format of llmstxt.org."""
    lines = [f"# {name}", "", f"> {description}"]
    for tab in navigation.groups():
        lines += ["", f"## {tab.title}", ""]
        lines += [f"- [{page.title}]({page.path}): {page.summary}" for page in tab.pages()]
    return "\n".join(lines) + "\n"
