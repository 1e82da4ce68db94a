"""Which tools a server has. It may say anything: only what models can be told is taken, and not more than is sound."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.skill.text import hidden_characters

__all__ = ["Listed", "listed_tools", "name_problem"]

_MAX_PAGES = 100
_MAX_TOOLS = 1_000
_MAX_SPEC = 64_000
_MAX_LIST = 4_000_000


@dataclass(frozen=True)
class Listed:
    """A tool of a server. ``spec`` is all that decides what models are told of it, as a text."""

    theirs: Any
    spec: str

    @property
    def name(self) -> str:
        """What the server calls it."""
        return str(self.theirs.name)


async def listed_tools(client: Any, say: Callable[[str], None]) -> list[Listed]:
    """The tools of a server in its order; ``say`` is told of those that are left out. Raises what the client raises.

    At most 1,000 tools on 100 pages, each described by 64,000 characters and all by 4 million.
    """
    if client.server_capabilities.tools is None:
        return []
    found: list[Listed] = []
    size, cursor = 0, None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for theirs in page.tools:
            spec = _spec(theirs)
            if spec is None or len(spec) > _MAX_SPEC:
                name = theirs.name[:80]
                if spec is None:
                    say(f"the tool {name!r} is omitted: its definition cannot be serialized as JSON")
                else:
                    say(
                        f"the tool {name!r} is omitted: its definition has {len(spec):,} characters, and the maximum "
                        f"is {_MAX_SPEC:,}"
                    )
                continue
            size += len(spec)
            if len(found) >= _MAX_TOOLS or size > _MAX_LIST:
                say(f"the server's list of tools is too long: the tools after the first {len(found):,} are omitted")
                return found
            found.append(Listed(theirs, spec))
        cursor = page.next_cursor
        if not cursor:
            return found
    say(f"the server's list of tools has more than {_MAX_PAGES} pages: the tools on later pages are omitted")
    return found


def name_problem(schema: Any) -> str:
    """Return why a reader of ``schema`` would mistake a name in it. Return an empty string for no reason.

    Names are those of arguments, and all other words of the schema. A call has to use them as they are.

    >>> name_problem({"properties": {"amount\\u200b": {}}})
    "the schema contains the name 'amount\\\\u200b', which has hidden characters or unusual whitespace"
    """
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
            odd = next((name for name in part if _is_odd(name)), None)
            if odd is not None:
                return f"the schema contains the name {odd[:80]!a}, which has hidden characters or unusual whitespace"
    return ""


def _is_odd(name: str) -> bool:
    """Return True if a name has hidden characters, a joiner, or space that is not a single blank inside."""
    if name != name.strip():
        return True
    if name.isascii() and name.isprintable():
        return False
    return bool(hidden_characters(name)) or any(
        unicodedata.category(char) in ("Cc", "Cf", "Zs", "Zl", "Zp") and char != " " for char in name
    )


def _spec(theirs: Any) -> str | None:
    try:
        return json.dumps(
            [theirs.name, theirs.description, theirs.title, theirs.input_schema, str(theirs.annotations)],
            sort_keys=True,
        )
    except (ValueError, TypeError, RecursionError):
        return None
