"""Results of tools, shortened to a number of characters without a loss of their structure.

A JSON document remains a valid one. Its long strings are shortened first, the longest most, so that names, references
and numbers remain. If that is not enough, lists and objects are shortened, each with the number of omitted entries.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

# Shorter strings are kept: the text that replaces the remainder would be as long.
_SHORTEST = 64
# Strings of lists are often names.
_MAX_ENTRY = 512
# Strings under these keys identify something. A part of one is useless.
_IDENTIFYING = frozenset(
    ("id", "name", "path", "file", "ref", "uri", "url", "link", "version", "saved_as", "session_id", "call_id")
)
_MAX_IDENTIFIER = 4_096
# Members with the address of the whole content.
_REFERENCES = ("ref", "uri", "url", "path")
_MAX_REFERENCE = 200
# Outputs of programs: the last characters are kept as well, because errors are printed last.
_PRINTED = frozenset(("stdout", "stderr", "output"))
_FEWEST_MEMBERS = 32
_MAX_INTEGER = 4_000
# A document with more levels is treated as text.
_MAX_DEPTH = 200
# A JSON document and a text after it: at least this share of the space is for the document.
_SPACE_FOR_TEXT = 4


def truncate(name: str, content: str, most: int, sections: Sequence[str] = ()) -> str:
    """Return ``content`` with at most ``most`` characters, plus a line about the omitted part if it is plain text.

    ``sections`` are the parts of ``content`` in order. The longest are shortened first.

    >>> truncate("skill_run", json.dumps({"exit_code": 0, "stdout": "x" * 1000}), 200)[:60]
    '{"exit_code": 0, "stdout": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'
    """
    if len(content) <= most:
        return content
    if len(sections) > 1 and "".join(sections) == content:
        return "".join(_shared(sections, most))
    document = _document(content)
    if document is None or len(content) - len(document.after) <= most // 2:
        return f"{content[:most]}\n[the result of {name} has {len(content):,} characters; these are the first {most:,}]"
    after = _both_ends(document.after, most // _SPACE_FOR_TEXT)
    return _shorter_json(document.value, most - len(after)) + after


class _Document(NamedTuple):
    """A JSON object or array, and the text after it."""

    value: Any
    after: str


def _document(content: str) -> _Document | None:
    """Return the document that ``content`` begins with. Return None if it begins with anything else."""
    text = content.lstrip()
    if text[:1] not in ("{", "["):
        return None
    try:
        value, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return _Document(value, text[end:].rstrip()) if _depth(value) <= _MAX_DEPTH else None


def _depth(value: Any) -> int:
    """Return the number of levels of lists and objects, at most one more than are shortened."""
    level, depth = [value], 0
    while level and depth <= _MAX_DEPTH:
        level = [
            entry
            for found in level
            if isinstance(found, (dict, list))
            for entry in (found.values() if isinstance(found, dict) else found)
        ]
        depth += 1
    return depth


def _real(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_INTEGER else text


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_float=_real, parse_int=_integer, parse_constant=_no_constant)


def _shared(sections: Sequence[str], most: int) -> Iterator[str]:
    """Return ``sections`` with ``most`` characters in total."""
    sizes = [(len(section), 0) for section in sections]
    longest = _largest_fit(lambda size: sum(min(length, size) for length, _ in sizes) <= most, most)
    for section in sections:
        if len(section) <= longest:
            yield section
            continue
        document = _document(section)
        if document is None or document.after:
            yield _both_ends(section, longest)
        else:
            yield _shorter_json(document.value, longest)


def _both_ends(text: str, most: int) -> str:
    """Return the first and last characters of a text, with a line between them."""
    if len(text) <= most:
        return text
    gap = f"\n[… {len(text):,} characters, the middle is omitted …]\n"
    room = max(0, most - len(gap))
    return text[: room - room // 2] + gap + text[len(text) - room // 2 :]


def _shorter_json(value: Any, most: int) -> str:
    """Return JSON of at most ``most`` characters, or the shortest possible."""
    strings = list(_long_strings(value))
    fixed = len(_json(value)) - sum(found.size for found in strings)
    room = most - fixed

    def fits(size: int) -> bool:
        return sum(min(found.size, size + found.mark) for found in strings) <= room

    # A sum of the sizes is exact but for characters that take more than one place in JSON, and for changed flags.
    size = _largest_fit(fits, most) if fits(0) else 0
    text = _json(_with_short_strings(value, size))
    while len(text) > most and size > 0:
        size = max(0, size - (len(text) - most)) * 9 // 10
        text = _json(_with_short_strings(value, size))
    if len(text) <= most:
        return text
    short = _with_short_strings(value, 0)
    entries = _largest_fit(lambda count: len(_json(_with_fewer_entries(short, count))) <= most, most, growing=True)
    text = _json(_with_fewer_entries(short, entries))
    return text if len(text) <= most else _json({"truncated": True, "characters": len(_json(value))})


def _largest_fit(fits: Callable[[int], bool], most: int, *, growing: bool = False) -> int:
    """Return the largest number up to ``most`` that fits, 0 if none does. Larger numbers fit less.

    ``growing`` begins with small numbers, if large ones are expensive.
    """
    low, high = 0, most
    if growing:
        high = 1
        while high < most and fits(high):
            low, high = high, min(2 * high, most)
    return low + bisect_left(range(low + 1, high + 1), True, key=lambda size: not fits(size))


class _LongString(NamedTuple):
    """Characters of a string in JSON, and of the text that replaces its remainder."""

    size: int
    mark: int


def _long_strings(value: Any, key: str = "", where: str = "") -> Iterator[_LongString]:
    if isinstance(value, str):
        size = len(_json(value))
        mark = len(_json(_mark(len(value), len(value), where)))
        if not _is_kept(value, key) and size > mark:
            yield _LongString(size, mark)
    elif isinstance(value, dict):
        where = _reference(value)
        for name, member in value.items():
            yield from _long_strings(member, name, where)
    elif isinstance(value, list):
        for entry in value:
            if not _is_name(entry):
                yield from _long_strings(entry, key)


def _with_short_strings(value: Any, size: int, key: str = "", where: str = "") -> Any:
    """Return ``value`` with at most ``size`` characters of each long string, plus the text about the remainder."""
    if isinstance(value, str):
        return value if _is_kept(value, key) else _short_string(value, size, key, where)
    if isinstance(value, dict):
        where = _reference(value)
        short = {name: _with_short_strings(member, size, name, where) for name, member in value.items()}
        if value.get("truncated") is False and any(
            isinstance(member, str) and short[name] is not member for name, member in value.items()
        ):
            short["truncated"] = True
        return short
    if isinstance(value, list):
        return [entry if _is_name(entry) else _with_short_strings(entry, size, key) for entry in value]
    return value


def _is_kept(text: str, key: str) -> bool:
    return len(text) <= (_MAX_IDENTIFIER if key in _IDENTIFYING else _SHORTEST)


def _is_name(entry: Any) -> bool:
    return isinstance(entry, str) and len(entry) <= _MAX_ENTRY


def _short_string(text: str, size: int, key: str, where: str) -> str:
    whole = len(_json(text))
    if whole <= size + len(_json(_mark(len(text), len(text), where))):
        return text
    # Control characters take six places in JSON: a part of the text is taken by the mean size of its characters.
    kept = min(len(text), size * len(text) // whole)
    while kept and len(_json(text[:kept])) > size + 2:
        kept = kept * 9 // 10
    mark = _mark(len(text) - kept, len(text), where)
    end = kept // 2 if key in _PRINTED else 0
    return text[: kept - end] + mark + text[len(text) - end :]


def _mark(omitted: int, of: int, where: str) -> str:
    rest = f": read {where}" if where else ""
    return f"[… {omitted:,} of {of:,} characters omitted{rest} …]"


def _reference(value: dict[str, Any]) -> str:
    found = (value.get(name) for name in _REFERENCES)
    return next((ref for ref in found if isinstance(ref, str) and 0 < len(ref) <= _MAX_REFERENCE), "")


def _with_fewer_entries(value: Any, most: int) -> Any:
    """Return ``value`` with at most ``most`` entries of each list, and as many members of each large object."""
    if isinstance(value, list):
        kept: list[Any] = [_with_fewer_entries(entry, most) for entry in value[:most]]
        if len(value) > most:
            kept.append(f"[… {len(value) - most:,} of {len(value):,} entries omitted …]")
        return kept
    if isinstance(value, dict):
        count = max(most, _FEWEST_MEMBERS)
        members = {name: _with_fewer_entries(value[name], most) for name in list(value)[:count]}
        if len(value) > count:
            members["…"] = f"{len(value) - count:,} of {len(value):,} members omitted"
        return members
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
