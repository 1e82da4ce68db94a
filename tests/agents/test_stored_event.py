"""Examines the internals of agents.stored_event on purpose."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Record
from flink_skills.agents.state.event import stored_event

HEADER = struct.Struct(">BBq")


def stored(content: bytes, timestamp: int | None = None) -> dict[str, Any]:
    return stored_event(HEADER.pack(1, timestamp is not None, timestamp or 0) + content)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ("text", "text"),
        (7, 7),
        ({"a": [1, None, 2.5]}, {"a": [1, None, 2.5]}),
        (Record(id="a1", at=dt.datetime(2026, 2, 3)), {"id": "a1", "at": "2026-02-03T00:00:00"}),
        ((Decimal("1.50"), dt.date(2026, 2, 3)), ["1.50", "2026-02-03"]),
    ],
)
def test_an_event_of_plain_values_is_shown(event: Any, shown: Any, protocol: int) -> None:
    assert stored(pickle.dumps(event, protocol=protocol), 17) == {"timestamp": 17, "event": shown}


def test_an_event_of_a_table_is_shown() -> None:
    assert stored(json.dumps({"id": "ä"}).encode()) == {"event": {"id": "ä"}}


class Writes:
    """An event whose pickle does something when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "opened"))


def test_an_event_of_other_classes_is_not_opened(tmp_path: Path) -> None:
    content = pickle.dumps({"inner": Writes(tmp_path / "trace")})
    assert stored(content) == {"bytes": len(content)}
    assert not (tmp_path / "trace").exists()
    pickle.loads(content)  # shows that this one does something
    assert (tmp_path / "trace").exists()


def test_what_is_no_event_is_its_size() -> None:
    assert stored(b"\xff\xfe") == {"bytes": 2}
