"""Which tools a server has. It may say anything: only what models can be told is taken, and not more than is sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Listed", "listed_tools"]

_MOST_PAGES = 100
_MOST_TOOLS = 1_000
_LARGEST_SPEC = 64_000
_LARGEST_LIST = 4_000_000


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
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for theirs in page.tools:
            spec = _spec(theirs)
            if spec is None or len(spec) > _LARGEST_SPEC:
                long = "what describes it is no JSON" if spec is None else f"{len(spec):,} characters describe it"
                say(f"its tool {theirs.name[:80]!r} is left out: {long}")
                continue
            size += len(spec)
            if len(found) >= _MOST_TOOLS or size > _LARGEST_LIST:
                say(f"it has too many tools: those after the first {len(found):,} are left out")
                return found
            found.append(Listed(theirs, spec))
        cursor = page.next_cursor
        if not cursor:
            return found
    say(f"its list of tools has no end: what comes after {_MOST_PAGES} pages is left out")
    return found


def _spec(theirs: Any) -> str | None:
    try:
        return json.dumps(
            [theirs.name, theirs.description, theirs.title, theirs.input_schema, str(theirs.annotations)],
            sort_keys=True,
        )
    except (ValueError, TypeError, RecursionError):
        return None
