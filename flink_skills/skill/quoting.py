"""Text in quotes that YAML refuses: an apostrophe or a quotation inside, a backslash that escapes nothing."""

from __future__ import annotations

import re

__all__ = ["text_in_quotes"]

# A quote inside: an apostrophe between letters, or one that opens a word or closes one.
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_OPENS = re.compile(r"(?:^|(?<=[\s(\[{/,=:\u2014-]))(?P<quote>['\"])(?=\S)")
_WITHIN = re.compile(r"(?<=\w)['\"](?=\w)")


def text_in_quotes(first: str, rest: list[str]) -> str | None:
    """What the author meant by a value that begins with a quote but is no quoted YAML scalar.

    When the quotes at both ends belong together the text is what stands between them, otherwise all of it.
    None when the first quote is never closed.

    >>> text_in_quotes("'It's here'", []), text_in_quotes('"A" and "B"', []), text_in_quotes(r'"C:\\\\dir"', [])
    ("It's here", '"A" and "B"', 'C:\\\\\\\\dir')
    """
    text = _folded([first, *rest])
    quote = text[0]
    inner = text[1:-1]
    if len(text) > 2 and text.endswith(quote) and not inner.endswith("\\"):
        if _balanced(inner, quote):
            return inner.replace('\\"', '"') if quote == '"' else inner.replace("''", "'")
        return text
    return text if quote in text[1:] else None


def _balanced(inner: str, quote: str) -> bool:
    """Whether the quotes inside come in pairs that open and then close."""
    inner = inner.replace('\\"', "") if quote == '"' else _APOSTROPHE.sub("", inner.replace("''", ""))
    is_open = False
    for match in re.finditer(re.escape(quote), inner):
        # Between two letters, as where words are not spaced, a quote is what its turn makes it.
        opens = not is_open if _WITHIN.match(inner, match.start()) else bool(_OPENS.match(inner, match.start()))
        if opens == is_open:
            return quote == "'" and not opens  # a possessive, as in: the users' files
        is_open = not is_open
    return not is_open


def _folded(lines: list[str]) -> str:
    """Join lines as YAML folds text: a line end is a space, blank lines are line ends."""
    text = ""
    ends = 0
    for line in map(str.strip, lines):
        if not line:
            ends += 1
            continue
        text += ("\n" * ends if ends else " ") + line if text else line
        ends = 0
    return text
