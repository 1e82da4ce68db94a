"""Static page that shows JSON data: one self-contained file for browsers, which loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from string import Template
from typing import Any

from flink_skills.texts import replace_hidden, visible

__all__ = ["render_page"]

_FILES = Path(__file__).with_name("page_files")


def render_page(view: str, title: str, data: dict[str, Any], *, alternative: str) -> str:
    """Return the page as HTML. The result depends only on the arguments.

    The script inserts strings of ``data`` as text, never as markup. As a second barrier, the content security policy
    allows only the script of the page. Invisible characters are marked.

    Args:
        view: Name of the script in ``page_files`` that shows the data.
        title: Title of the page, which is also in the data.
        data: JSON data.
        alternative: Sentence for browsers without JavaScript.
    """
    style = _read("page.css")
    script = _read("page.js") + _read(f"{view}.js")
    # The text of a script element ends at the first "</script".
    encoded = json.dumps(_mark_hidden({"title": title, **data})).replace("<", "\\u003c")
    return Template(_read("page.html")).substitute(
        title=html.escape(visible(title)),
        alternative=html.escape(alternative),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=encoded,
    )


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _mark_hidden(value: Any) -> Any:
    """Return JSON data with each hidden character of its strings as ``U+…`` between U+E000 and U+E001.

    Private characters are hidden as well, so the data contains no other U+E000.
    """
    if isinstance(value, str):
        return replace_hidden(value, lambda char: f"\ue000U+{ord(char):04X}\ue001")
    if isinstance(value, dict):
        return {key: _mark_hidden(member) for key, member in value.items()}
    return [_mark_hidden(member) for member in value] if isinstance(value, (list, tuple)) else value
