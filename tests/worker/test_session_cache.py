from __future__ import annotations

from flink_skills.agents import NO_CONVERSATION, Session
from flink_skills.worker import SessionCache


def session(size: int) -> Session:
    found, _ = Session().after(NO_CONVERSATION, "x" * size)
    return found


def test_the_sessions_used_last_stay() -> None:
    cache = SessionCache(sessions=2)
    for key in ("a", "b", "a", "c"):
        cache.keep((1, key), 1, session(10))
    assert [cache.find((1, key), 1) is not None for key in "abc"] == [True, False, True]


def test_bytes_are_bounded() -> None:
    cache = SessionCache(size=2500)
    for key in "abc":
        cache.keep((1, key), 1, session(1000))
    assert [cache.find((1, key), 1) is not None for key in "abc"] == [False, True, True]
    # A session that is larger than the cache is there until the next one comes.
    cache.keep((1, "d"), 1, session(5000))
    assert (len(cache), cache.find((1, "d"), 1) is not None) == (1, True)
    cache.keep((1, "d"), 2, session(10))
    cache.keep((1, "e"), 1, session(1000))
    assert (len(cache), cache.find((1, "d"), 1), cache.find((1, "d"), 2) is not None) == (2, None, True)


def test_the_limit_is_a_share_of_the_memory_of_the_worker() -> None:
    cache = SessionCache()
    large = session(6 << 20)
    for memory, kept in ((320 << 20, 3), (64 << 20, 2), (0, 8)):
        cache.limit(memory)
        for n in range(8):
            cache.keep((1, str(n)), 1, large)
        assert len(cache) == kept, memory
        cache.drop(1)


def test_an_operator_that_is_gone_leaves_nothing() -> None:
    cache = SessionCache(size=2500)
    cache.keep((1, "a"), 1, session(1000))
    cache.keep((2, "a"), 1, session(1000))
    cache.drop(1)
    assert (len(cache), cache.find((2, "a"), 1) is not None) == (1, True)
