"""Pages that were fetched a short while ago."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from weakref import WeakValueDictionary

__all__ = ["Page", "PageCache", "shared_cache"]

# What an entry costs beside its texts, about.
_OVERHEAD = 512


@dataclass(frozen=True)
class Page:
    """A page as it was fetched, before it is cut to a length. ``is_cut`` is True for the beginning of a larger body."""

    url: str
    status_code: int
    status_text: str
    content_type: str
    content: str
    is_cut: bool = False

    @property
    def cost(self) -> int:
        """Bytes of memory, about. Characters beyond Latin-1 take up to four each."""
        wide = 1 if self.content.isascii() else 4
        return wide * len(self.content) + len(self.url) + _OVERHEAD


class PageCache:
    """Keeps pages for ``ttl`` seconds and within ``max_bytes``; those not used for longest go first."""

    def __init__(self, ttl: float, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._clock = clock
        self._pages: OrderedDict[str, tuple[float, Page]] = OrderedDict()
        # Agents of one process may have loops of their own. Nobody waits for long: nothing here does.
        self._lock = threading.Lock()
        self.used = 0

    def __len__(self) -> int:
        return len(self._pages)

    def get(self, key: str) -> Page | None:
        """The page, if it is there and not too old; one that is too old is removed."""
        with self._lock:
            if key not in self._pages:
                return None
            stored, page = self._pages[key]
            if self._clock() - stored >= self._ttl:
                self._remove(key)
                return None
            self._pages.move_to_end(key)
            return page

    def put(self, key: str, page: Page) -> None:
        """Keep a page; one that is larger than everything together may be is not kept."""
        with self._lock:
            if key in self._pages:
                self._remove(key)
            if page.cost > self._max_bytes:
                return
            while self.used + page.cost > self._max_bytes:
                self._remove(next(iter(self._pages)))
            self._pages[key] = (self._clock(), page)
            self.used += page.cost

    def _remove(self, key: str) -> None:
        _, page = self._pages.pop(key)
        self.used -= page.cost


# Those that some tool of this process still has.
_caches: WeakValueDictionary[Hashable, PageCache] = WeakValueDictionary()
_caches_lock = threading.Lock()


def shared_cache(fetched_by: Hashable, ttl: float, max_bytes: int, clock: Callable[[], float]) -> PageCache:
    """The cache of all tools of this process that fetch in the same way, so that a worker has one, however many copies
    of a tool it has.

    ``fetched_by`` is all that decides what a URL gives: what one tool may read must not come to one that may not.
    """
    with _caches_lock:
        key = (fetched_by, ttl, max_bytes, clock)
        found = _caches.get(key)
        if found is None:
            found = _caches[key] = PageCache(ttl, max_bytes, clock)
        return found
