"""Pieces of streamed answers, joined as in a whole answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flink_skills.models.results import arguments_of
from flink_skills.models.wires.json_bytes import object_of

# Fields of an item that come in pieces.
_PIECES = frozenset({"text", "summary", "thinking"})
_MAX_DIGITS = 9
# A call that came in one piece is read if it is shorter, to see whether it is whole.
_MAX_READ = 65_536
_MAX_NAME = 1_000


class StreamedCall:
    """One streamed call of a chat completion, under the names that came first."""

    def __init__(self, number: int, place: int) -> None:
        self.number = number
        self.place = place
        self.id = ""
        self.delta_id = ""
        self.name = ""
        self.whole: Any = None
        self.pieces: list[str] = []
        self.fields: dict[str, Any] = {"id": None, "type": None, "function": {"name": None, "arguments": None}}

    def ends_before(self, id_: str, name: str, arguments: Any) -> bool:
        """Return True if a piece for the place of this call begins another one."""
        if id_ and self.id and id_ != self.id:
            # Some servers invent an id for each piece. Only the first piece of a call has a name.
            return bool(name)
        if not name or not (self.pieces or self.whole is not None):
            return False
        # With the same id, or none: another name, or a second whole object for a name that each piece repeats.
        begins = isinstance(arguments, dict) or (isinstance(arguments, str) and arguments.lstrip().startswith("{"))
        return name != self.name or (begins and self._is_whole())

    def named(self, piece: Any) -> str:
        """Return the name after one more piece. Some servers repeat it, and some send it in pieces."""
        written = str(piece or "")
        if self.name and (written == self.name or self.pieces or self.whole is not None):
            return self.name
        return (self.name + written)[:_MAX_NAME]

    def _is_whole(self) -> bool:
        if self.whole is not None:
            return True
        if len(self.pieces) != 1 or not self.pieces[0].rstrip().endswith("}"):
            return False
        return len(self.pieces[0]) > _MAX_READ or isinstance(arguments_of(self.pieces[0]), dict)

    def body(self) -> dict[str, Any]:
        """Return the whole call."""
        arguments = self.whole if self.whole is not None and not self.pieces else joined_arguments(self.pieces)
        function = {**self.fields["function"], "name": self.name, "arguments": arguments}
        found = {**self.fields, "id": self.id, "function": function}
        return {**found, "type": found["type"] or "function"}


def joined_arguments(pieces: Sequence[str]) -> str:
    """Return the arguments of a call. Some servers begin with an empty object, and continue with the real one."""
    more = "".join(pieces[1:]).lstrip()
    return more if more and pieces[0].strip() == "{}" else "".join(pieces)


class Fields:
    """Fields that come in pieces. Pieces of strings and lists are joined, and anything else is replaced."""

    def __init__(self, keep: Callable[..., Any]) -> None:
        self._keep = keep
        self._found: dict[str, list[Any]] = {}

    def add(self, name: str, value: Any) -> None:
        if (pieces := self._found.get(name)) is None:
            pieces = self._found[name] = self._keep([], is_new=True)
        if pieces and not (isinstance(value, (str, list)) and type(value) is type(pieces[0])):
            pieces.clear()
        pieces.append(self._keep(value))

    def whole(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, pieces in self._found.items():
            first = pieces[0]
            if isinstance(first, str):
                found[name] = "".join(pieces)
            elif isinstance(first, list):
                found[name] = _joined_list([item for piece in pieces for item in piece])
            else:
                found[name] = first
        return found


def _joined_list(items: list[Any]) -> list[Any]:
    """Join the pieces that have the same index and type, as in streamed reasoning."""
    joined: list[Any] = []
    numbered: dict[tuple[Any, Any], tuple[dict[str, Any], dict[str, list[str]]]] = {}
    for item in items:
        index = index_of(item.get("index")) if isinstance(item, dict) else None
        if index is None:
            joined.append(item)
            continue
        key = (index, str(item.get("type")))
        if key not in numbered:
            numbered[key] = (dict(item), {})
            joined.append(numbered[key][0])
        whole, texts = numbered[key]
        for name, value in item.items():
            if name in _PIECES and isinstance(value, str):
                texts.setdefault(name, []).append(value)
            elif value is not None:
                whole[name] = value
    for whole, texts in numbered.values():
        whole.update({name: "".join(pieces) for name, pieces in texts.items()})
    return joined


def joined_content(pieces: list[Any]) -> Any:
    """Return a content: a string, or a list if some pieces are parts. Neighbors with text are one part."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces) or None
    joined: list[Any] = []
    texts: list[str] = []

    def end_text() -> None:
        if texts:
            joined.append({"type": "text", "text": "".join(texts)})
            texts.clear()

    for piece in pieces:
        if isinstance(piece, str) or (isinstance(piece, dict) and piece.get("type") == "text"):
            texts.append(content_text(piece))
        else:
            end_text()
            joined.append(piece)
    end_text()
    return joined


def is_thought(part: Mapping[str, Any]) -> bool:
    """Return True for a part of a content that is reasoning."""
    kind = str(part.get("type"))
    return part.get("thought") is True or kind.startswith(("thinking", "reasoning", "redacted"))


def content_text(content: Any) -> str:
    """Return the text of a content of a chat completion, which some servers return as a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(content_text, content))
    text = content.get("text") if isinstance(content, dict) and not is_thought(content) else None
    return text if isinstance(text, str) else ""


def item_text(item: Mapping[str, Any]) -> str:
    """Return the text of an item of a response, or the reason why the model refuses to answer."""
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, list):
        return content if item.get("type") == "message" and isinstance(content, str) else ""
    parts = [object_of(part) for part in content]
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def stated_reason(choice: Mapping[str, Any]) -> str:
    """Return the reason why a choice ended, empty if it has not. Some servers state "null" in each chunk."""
    reason = str(choice.get("finish_reason") or "")
    return "" if reason in ("null", "None") else reason


def index_of(value: Any) -> int | None:
    """Return the number of a part. Return None if it has none."""
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
