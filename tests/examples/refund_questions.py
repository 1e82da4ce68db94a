"""Questions of the refunds for the tests of the bridge and the page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.refunds.bridge import Bridge
from examples.refunds.records import Files

__all__ = ["answers", "ask", "bridge_of", "question"]


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
    (folder / "questions").mkdir(exist_ok=True)
    number = len(list((folder / "questions").iterdir()))
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "questions" / ".part.inprogress").write_text(lines)
    (folder / "questions" / ".part.inprogress").rename(folder / "questions" / f"part-{number}")
    (folder / "questions" / ".part.inprogress").write_text("{")


def answers(folder: Path) -> list[dict[str, Any]]:
    """Return the written answers. The field ``answer`` is read."""
    found = [json.loads(file.read_text()) for file in (folder / "decisions").glob("*.json")]
    return [of | {"answer": None if of["answer"] is None else json.loads(of["answer"])} for of in found]


@contextmanager
def bridge_of(folder: Path) -> Iterator[Bridge]:
    """Run a bridge over the directories of ``folder``."""
    with Bridge(Files(folder / "questions", folder / "decisions")) as bridge:
        thread = threading.Thread(target=bridge.serve_forever)
        thread.start()
        yield bridge
        bridge.shutdown()
        thread.join()
