"""``Write``: a file's content, or what is added to it."""

from __future__ import annotations

import hashlib
import threading
from typing import Annotated, Any

from pydantic import Field

from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.area import Area, Target
from flink_skills.tools.files.file_tool import StoredTool
from flink_skills.tools.files.ledger import Ledger
from flink_skills.tools.files.storing import Storing
from flink_skills.tools.files.text import Encoding, detect

__all__ = ["Write"]

_HEAD = 64 << 10


class _WriteArguments(ArgumentModel):
    path: Annotated[str, Also("file_path", "file", "filename")]
    content: Annotated[str, Also("text", "contents")]
    append: bool = Field(False, description="Add to the end instead of replacing the file.")


class Write(StoredTool[_WriteArguments]):
    """Writes a file, with the folders above it, at once or not at all; or adds to its end.

    ``{success, message, path}``. New files are UTF-8; what is added has the encoding that the file has. A call that is
    made again after a crash adds nothing a second time, and completes what was begun.
    """

    tool_name = "Write"
    description = (
        "Write a text file. Replaces an existing file, or adds to its end with append=true. Creates missing folders. "
        "To change part of a file, use Edit."
    )
    model = _WriteArguments

    def _work(
        self, asked: _WriteArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        target = area.locate(root, asked.path)
        area.check_writable(target, asked.path)
        storing = Storing(area, root)
        with storing.alone():
            if asked.append:
                size = _append(asked.content, area, target, storing, Ledger(root, context))
            else:
                data = Encoding().encode(asked.content)
                size = len(data)
                storing.replace(target, data)
        shown = area.names.shown(target.parts)
        return {
            "success": True,
            "message": f"SUCCESS: file {shown} written to successfully ({size} bytes)",
            "path": shown,
        }


def _append(text: str, area: Area, target: Target, storing: Storing, ledger: Ledger) -> int:
    """Add ``text`` to the file; the bytes that it is."""
    at = storing.size(target)
    head = storing.part(target, 0, _HEAD) if at else b""
    encoding = (detect(head, whole=at <= _HEAD) if head else None) or Encoding()
    data = encoding.encode(text)
    about = {"op": "append", "path": "/".join(target.parts), "sha256": hashlib.sha256(data).hexdigest()}
    begun = ledger.begun()
    rest = data
    if begun is not None and all(begun.get(name) == value for name, value in about.items()):
        rest = _missing(data, begun.get("at"), target, storing, at)
    else:
        with area.told(target.asked):
            ledger.note(**about, at=at)
    if rest:
        storing.append(target, rest)
    return len(data)


def _missing(data: bytes, begun_at: Any, target: Target, storing: Storing, size: int) -> bytes:
    """What of ``data`` an earlier attempt, which began when the file had ``begun_at`` bytes, has not written."""
    if not isinstance(begun_at, int) or not 0 <= begun_at < size:
        return data
    there = storing.part(target, begun_at, len(data))
    if there == data:
        return b""
    # A write that the crash cut short; anything else is another's, and what was begun is not there.
    return data[len(there) :] if data.startswith(there) and begun_at + len(there) == size else data
