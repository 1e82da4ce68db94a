"""HTML to Markdown, in a time that hostile pages cannot stretch."""

from __future__ import annotations

import re
from typing import Any

from flink_skills.tools.web.failures import WebError

__all__ = ["to_markdown"]

_NOT_SHOWN = ("script", "style", "noscript", "template", "svg")
# Beyond it a page becomes plain text: the conversion calls itself for each level.
_DEEPEST = 100
# Some seconds of conversion at most. Scripts and styles are gone by then, and a page has seldom a tenth of it.
_MOST_MARKUP = 400_000
_EMPTY_LINES = re.compile(r"\n{3,}")


def to_markdown(text: str, base_url: str) -> str:
    """The page as Markdown, without what is not shown, and with links that are absolute.

    Raises :class:`WebError` for a page of thousands of elements within each other.

    >>> to_markdown("<h1>Hi</h1><script>x()</script><p>See <a href='b'>b</a>.", "https://example.org/a")
    '# Hi\\n\\nSee [b](https://example.org/b).'
    """
    from lxml import etree, html

    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    source = text.replace("\0", "").encode("utf-8", errors="replace")
    try:
        root = html.document_fromstring(source, parser=parser, ensure_head_body=True)
    except etree.ParserError:  # nothing in it
        return ""
    if any(problem.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for problem in parser.error_log):
        # What follows is not there: better no page than half of it without a word.
        raise WebError(
            "DECODE_ERROR", "the page has more elements within each other than can be read; use another page"
        )
    etree.strip_elements(root, *_NOT_SHOWN, with_tail=False)
    for image in root.iter("img"):
        if image.get("src", "").lstrip().lower().startswith("data:"):
            del image.attrib["src"]
    root.make_links_absolute(base_url, handle_failures="ignore")
    body = root.find("body")
    title = (root.findtext("head/title") or "").strip()
    if body is None or _depth(body) > _DEEPEST:
        return _plain(root)
    markup = etree.tostring(body, encoding="unicode", method="html")[:_MOST_MARKUP]
    shown = _convert(markup)
    # Many pages have their name in the title alone.
    return shown if not title or shown.startswith("# ") else f"# {' '.join(title.split())}\n\n{shown}".strip()


def _convert(markup: str) -> str:
    from markdownify import markdownify

    text: str = markdownify(markup, heading_style="ATX", bullets="-", bs4_options="lxml")
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return _EMPTY_LINES.sub("\n\n", lines).strip()


def _depth(root: Any) -> int:
    from lxml import etree

    deepest = level = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        level += 1 if event == "start" else -1
        if level > deepest:
            deepest = level
            if deepest > _DEEPEST:
                break
    return deepest


def _plain(root: Any) -> str:
    return "\n".join(line for piece in root.itertext() if (line := " ".join(piece.split())))
