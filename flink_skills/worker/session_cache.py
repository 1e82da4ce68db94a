"""The sessions that a worker keeps between turns, so that a conversation travels to it once."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from flink_skills.agents.state.session import Session

__all__ = ["SessionCache"]

_MAX_SESSIONS = 10_000
_MAX_BYTES = 128 << 20
_MIN_BYTES = 16 << 20
# In memory a session has several times the bytes of its stored form.
_SHARE_OF_MEMORY = 16

_Key = tuple[int, str]


class _Cached(NamedTuple):
    version: int
    size: int
    session: Session


class SessionCache:
    """Keeps the sessions that were used last, by operator and key.

    The cache evicts the others when it has more than ``sessions`` of them, or ``size`` bytes. These are bytes of stored
    sessions: in memory a session has several times as many. The TaskManager sends an evicted session again.
    """

    def __init__(self, sessions: int = _MAX_SESSIONS, size: int = _MAX_BYTES) -> None:
        self._max_sessions = sessions
        self._max_bytes = size
        self._bytes = 0
        self._cached: OrderedDict[_Key, _Cached] = OrderedDict()

    def limit(self, memory: int) -> None:
        """Derive the limit in bytes from the memory of the process. ``memory`` is 0 for a process without a limit."""
        self._max_bytes = max(memory // _SHARE_OF_MEMORY, _MIN_BYTES) if memory else _MAX_BYTES

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._cached)

    def find(self, key: _Key, version: int) -> Session | None:
        """Return the session of a key in this version. Return None if the cache does not have it."""
        cached = self._cached.get(key)
        return cached.session if cached is not None and cached.version == version else None

    def keep(self, key: _Key, version: int, session: Session) -> None:
        """Store the session that a turn left."""
        self._remove(key)
        self._cached[key] = _Cached(version, session.size, session)
        self._bytes += session.size
        while len(self._cached) > self._max_sessions or (self._bytes > self._max_bytes and len(self._cached) > 1):
            self._remove(next(iter(self._cached)))

    def drop(self, operator: int) -> None:
        """Remove the sessions of an operator."""
        for key in [key for key in self._cached if key[0] == operator]:
            self._remove(key)

    def _remove(self, key: _Key) -> None:
        cached = self._cached.pop(key, None)
        if cached is not None:
            self._bytes -= cached.size
