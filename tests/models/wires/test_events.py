"""Server-sent events in pieces of any size."""

from __future__ import annotations

import pytest

from flink_skills.models.wires import EventData
from tests.kit.growth import grows_linearly

STREAM = (
    b": a comment\n\n"
    b"event: message\ndata: one\n\n"
    b"data:two\r\nid: 7\r\n\r\n"
    b"data: three\rdata: lines\r\r"
    b"data\n\n"
    b"database: no\n\n"
    b"data: \xc3\xa9\n\n"
    b"data: never ended"
)
DATA = [b"one", b"two", b"three\nlines", b"", b"\xc3\xa9"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_pieces_of_any_size(size: int) -> None:
    events = EventData()
    found = [data for at in range(0, len(STREAM), size) for data in events.feed(STREAM[at : at + size])]
    assert found == DATA


def test_an_event_without_end_is_bounded() -> None:
    events = EventData()
    piece = b"data: " + b"x" * (4 << 20)
    with pytest.raises(ValueError, match="16,777,216"):
        for _ in range(5):
            list(events.feed(piece))


def test_a_long_line_in_small_pieces_is_read_in_linear_time() -> None:
    def read(line: str) -> None:
        events = EventData()
        for _ in line:
            list(events.feed(b"data: xy"))

    assert grows_linearly(read, lambda size: "x" * size, 200_000)
