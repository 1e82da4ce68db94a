"""Converts pages from HTML to Markdown, as the program of a process that can be ended.

It imports nothing of this package, so the process starts quickly. A request and its answer are each a line of JSON.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
from typing import Any

_NOT_SHOWN = ("script", "style", "noscript", "template", "svg")
# A deeper page becomes plain text: the conversion calls itself for each level.
_MAX_DEPTH = 100
# Characters of a page without scripts and styles. A page seldom has a tenth of it.
_MAX_MARKUP = 400_000
# Seconds of elapsed time for each second of CPU time.
_WALL = 4
# Bytes of memory of the process.
_MEMORY = 2 << 30
_EMPTY_LINES = re.compile(r"\n{3,}")
# markdownify takes quadratic time for these.
_LONG_SPACE = re.compile(r"\s{200,}")


def main() -> None:
    """Answer the requests on standard input until it ends.

    A request has ``page``, ``base_url`` and ``seconds``. After these seconds of CPU time the kernel ends the process,
    whatever the library does. The page may take ``_WALL`` times as long where the CPU is busy with other work.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _set_timers(request["seconds"])
        try:
            answer = {"markdown": convert(request["page"], request["base_url"])}
        except (ValueError, MemoryError, RecursionError) as error:
            answer = {"problem": str(error) or "the page needs too much memory"}
        _set_timers(0)
        sys.stdout.buffer.write(json.dumps(answer).encode("ascii") + b"\n")
        sys.stdout.buffer.flush()


def _set_timers(seconds: float) -> None:
    """Have the kernel end this process after ``seconds`` of CPU time. 0 cancels this."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * _WALL)


def convert(text: str, base_url: str) -> str:
    """Return the page as Markdown, without what is not shown, and with absolute links.

    Raises :class:`ValueError` for a page of thousands of elements within each other.
    """
    from lxml import etree, html

    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    source = text.replace("\0", "").encode("utf-8", errors="replace")
    try:
        root = html.document_fromstring(source, parser=parser, ensure_head_body=True)
    except etree.ParserError:  # nothing in it
        return ""
    if any(problem.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for problem in parser.error_log):
        # The rest of the page is missing, and half a page without a message would mislead.
        raise ValueError("the page has more elements within each other than can be read")
    etree.strip_elements(root, *_NOT_SHOWN, with_tail=False)
    for image in root.iter("img"):
        if image.get("src", "").lstrip().lower().startswith("data:"):
            del image.attrib["src"]
    root.make_links_absolute(base_url, handle_failures="ignore")
    body = root.find("body")
    title = (root.findtext("head/title") or "").strip()
    if body is None or _depth(body) > _MAX_DEPTH:
        return _plain(root)
    markup = _LONG_SPACE.sub(" ", etree.tostring(body, encoding="unicode", method="html"))[:_MAX_MARKUP]
    shown = _markdown(markup)
    # Many pages have their name in the title alone.
    title = " ".join(title.split())
    return shown if not title or shown.partition("\n")[0] in (title, f"# {title}") else f"{title}\n\n{shown}".strip()


def _markdown(markup: str) -> str:
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
            if deepest > _MAX_DEPTH:
                break
    return deepest


def _plain(root: Any) -> str:
    return "\n".join(line for piece in root.itertext() if (line := " ".join(piece.split())))


if __name__ == "__main__":
    main()
