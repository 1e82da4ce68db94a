"""Questions of the refunds for the tests of the bridge and the page."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.refunds.bridge import Bridge
from examples.refunds.records import Files

__all__ = ["answers", "ask", "bridge_of", "fail", "many", "question", "raw"]


def question(wait_id: str, **fields: Any) -> dict[str, Any]:
    """Return the record of an open question, as Flink writes it."""
    return {
        "wait_id": wait_id,
        "status": "open",
        "agent": "refunds",
        "key": f"key of {wait_id}",
        "kind": "approval",
        "name": "approval",
        "question": f"Pay {wait_id}?",
        "payload": '{"reason": "broken"}',
        "tool": "pay_refund",
        "arguments": '{"order": "A-1", "cents": 100}',
        "since": 1_700_000_000_000,
        "deadline": None,
        "answer": None,
        "by": "",
        **fields,
    }


def ask(folder: Path, *records: dict[str, Any]) -> None:
    """Write records of questions."""
    raw(folder, "".join(json.dumps(record) + "\n" for record in records).encode())


def fail(folder: Path, *texts: str) -> None:
    """Write error records."""
    rows = [{"key": "k", "turn": 1, "error": text, "event": None} for text in texts]
    raw(folder, "".join(json.dumps(row) + "\n" for row in rows).encode(), "failures")


def raw(folder: Path, data: bytes, table: str = "questions") -> Path:
    """Write a file of a table as Flink does: its name appears when it is complete. Return the file."""
    (folder / table).mkdir(exist_ok=True)
    number = len(list((folder / table).glob("part-*")))
    (folder / table / ".part.inprogress").write_bytes(data)
    (folder / table / ".part.inprogress").rename(folder / table / f"part-{number}")
    (folder / table / ".part.inprogress").write_text("{")
    return folder / table / f"part-{number}"


def answers(folder: Path) -> list[dict[str, Any]]:
    """Return the written answers. The field ``answer`` is read."""
    found = [json.loads(file.read_text()) for file in sorted((folder / "decisions").glob("*.json"))]
    return [of | {"answer": None if of["answer"] is None else json.loads(of["answer"])} for of in found]


def many(folder: Path, number: int = 200) -> None:
    """Ask for many refunds, the first since the longest time."""
    now = time.time_ns() // 1_000_000
    ask(
        folder,
        *[
            question(
                f"{i:032x}",
                key=f"A-{i}",
                question=f"Refund order A-{i}?",
                arguments=json.dumps({"order": f"A-{i}", "cents": 100 + i}),
                since=now - 1_000_000 + i,
            )
            for i in range(number)
        ],
    )


@contextmanager
def bridge_of(folder: Path, **settings: Any) -> Iterator[Bridge]:
    """Run a bridge over the directories of ``folder``."""
    records = Files(folder / "questions", folder / "decisions", folder / "failures")
    with Bridge(records, **settings) as bridge:
        thread = threading.Thread(target=bridge.serve_forever)
        thread.start()
        try:
            yield bridge
        finally:
            bridge.shutdown()
            thread.join()
