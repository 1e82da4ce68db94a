"""The parts of a request that are the same in many: its system text and its tools, each encoded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flink_skills.tools.base import ToolSpec

__all__ = ["Fixed"]

_MAX = 64


class Fixed:
    """Keeps the JSON of system texts and of sets of tools. ``encode_tool`` returns the JSON of one tool."""

    def __init__(self, encode_tool: Callable[[ToolSpec], bytes]) -> None:
        self._encode_tool = encode_tool
        self._systems: dict[str, bytes] = {}
        # A key holds its tools, so that no other tool gets their ids.
        self._tools: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], bytes]] = {}

    def system(self, text: str, encode: Callable[[str], bytes]) -> bytes:
        """Return the JSON of a system text."""
        found = self._systems.get(text)
        if found is None:
            if len(self._systems) >= _MAX:
                self._systems.pop(next(iter(self._systems)))
            found = self._systems[text] = encode(text)
        return found

    def tools(self, tools: Sequence[ToolSpec]) -> bytes:
        """Return the JSON of a set of tools, separated by commas."""
        key = tuple(map(id, tools))
        found = self._tools.get(key)
        if found is None:
            if len(self._tools) >= _MAX:
                self._tools.pop(next(iter(self._tools)))
            found = self._tools[key] = (tuple(tools), b",".join(map(self._encode_tool, tools)))
        return found[1]
