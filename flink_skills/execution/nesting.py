"""Which paths are inside of others, as texts: nothing is looked up, so give real paths where links matter."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable

__all__ = ["is_within", "outermost"]


def is_within(path: str, folders: Container[str]) -> bool:
    """Whether an absolute ``path`` is one of ``folders`` or inside of one.

    >>> is_within("/usr/bin/env", {"/usr"})
    True
    """
    while path not in folders:
        if path == "/":
            return False
        path = os.path.dirname(path)
    return True


def outermost(paths: Iterable[str]) -> list[str]:
    """``paths`` without those that are inside of others, the shortest first.

    >>> outermost(["/usr/bin", "/etc", "/usr"])
    ['/etc', '/usr']
    """
    found: dict[str, None] = {}
    for path in sorted(set(paths), key=lambda path: (len(path), path)):
        if not is_within(path, found):
            found[path] = None
    return list(found)
