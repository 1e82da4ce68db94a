"""Files that come with an event: named, taken out of what models read, and put into the workspace."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pydantic import BaseModel

from flink_skills.artifacts import ArtifactError, ArtifactStore, Reference, parse_reference
from flink_skills.endpoint import redact
from flink_skills.execution.workspace import WorkspacePathError, media_type
from flink_skills.sources.prefixes import is_remote
from flink_skills.texts import printable

if TYPE_CHECKING:
    from flink_skills.execution.workspace import Workspace
    from flink_skills.tools.state import SkillState

_FIELDS = frozenset({"name", "data", "text", "uri", "mime_type", "sha256"})
_CONTENT = ("data", "text", "uri")
_INPUTS = "work/inputs"
_TAKEN = ("event.json",)
_MAX_FILES = 256
_MAX_NAME_LENGTH = 120
_MAX_URI = 4096
_MAX_SHOWN = 200
_UNSAFE = re.compile(r"[^\w.+@=-]+")
_DATA_URI = re.compile(r"data:([^;,]*)(?:;[^;,]+)*;base64,", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
_MAX_END = 500
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Fetched:
    """A file that was fetched. ``path`` is where it is on this machine, "" if the workspace has it already."""

    path: str
    size: int
    sha256: str
    mime_type: str


@dataclass(frozen=True)
class EventFile:
    """A file of an event. ``name`` is the one it gets in ``work/inputs``, "" for an entry that cannot be used.

    ``data`` is its content, None for the artifact ``ref`` or where ``problem`` says what is wrong with the entry.
    ``uri`` is what the entry named, without secrets. ``url`` is the same with them, "" for anything but a file that
    the worker fetches, which is then ``fetched``. ``sha256`` is the digest that the entry asks for.
    """

    name: str
    original_name: str = ""
    mime_type: str = ""
    data: bytes | None = field(default=None, repr=False)
    ref: Reference | None = None
    uri: str = ""
    problem: str = ""
    url: str = field(default="", repr=False)
    sha256: str = ""
    fetched: Fetched | None = None

    def to_json(self) -> dict[str, Any]:
        """What models and ``event.json`` have instead of the content."""
        if self.problem:
            shown = {"original_name": self.original_name} if self.original_name else {}
            return {**shown, **({"uri": self.uri} if self.uri else {}), "error": self.problem}
        found: dict[str, Any] = {"name": f"{_INPUTS}/{self.name}"}
        if self.original_name and self.original_name != self.name:
            found["original_name"] = self.original_name
        if self.mime_type:
            found["mime_type"] = self.mime_type
        if self.data is not None:
            found["size_bytes"] = len(self.data)
        elif self.uri:
            found["uri"] = self.uri
        if self.fetched is not None:
            found["mime_type"] = self.fetched.mime_type
            found["size_bytes"] = self.fetched.size
        return found


def event_files(event: Any, field: str = "files", taken: Collection[str] = ()) -> tuple[EventFile, ...]:
    """The files in the field ``field`` of an event, each with a name of its own; none for any other event.

    The field is a list of mappings with ``data`` (bytes, or text in base64), ``text`` or ``uri`` (an artifact, or an
    address with ``sha256`` if it is known), and with ``name`` and ``mime_type`` if they are known. A list of anything
    else is data of the event's own and left alone; of a list of files, entries that cannot be used say so in
    ``problem``. ``taken`` are names in ``work/inputs`` that they cannot have
    (:attr:`~flink_skills.execution.workspace.Workspace.input_names`).

    >>> [file.name for file in event_files({"files": [{"name": "../a.txt", "text": "hi"}, {"text": "more"}]})]
    ['a.txt', 'upload_2']
    """
    entries = _entries(event, field)
    names = {*_TAKEN, *taken}
    found = []
    for number, entry in enumerate(entries[:_MAX_FILES], 1):
        file = file_of(entry)
        if not file.problem:
            name = free_name(file.name or f"upload_{number}", names)
            names.add(name)
            kind = file.mime_type or (media_type(name, file.data) if file.data is not None else "")
            file = dataclasses.replace(file, name=name, mime_type=kind)
        found.append(file)
    if len(entries) > _MAX_FILES:
        problem = f"{len(entries) - _MAX_FILES} more files were left out: an event has at most {_MAX_FILES}"
        found.append(EventFile("", problem=problem))
    return tuple(found)


def without_data(event: Any, field: str = "files", taken: Collection[str] = ()) -> Any:
    """The event with what models are told of its files in place of them; any other event as it is.

    >>> without_data({"id": 7, "files": [{"name": "a.txt", "data": "aGk="}]})["files"]
    [{'name': 'work/inputs/a.txt', 'mime_type': 'text/plain', 'size_bytes': 2}]
    """
    return with_names(event, event_files(event, field, taken), field)


def with_names(event: Any, files: Sequence[EventFile], field: str = "files") -> Any:
    """The same for ``files`` that :func:`event_files` has found in the event already."""
    if not files:
        return event
    return {**fields_of_event(event), field: [file.to_json() for file in files]}


def pinned_file(file: EventFile, versions: Mapping[str, str]) -> EventFile:
    """A file of an event, in the version that its turn began with."""
    if file.ref is None or file.ref.version:
        return file
    version = versions.get(file.ref.path)
    if version:
        return dataclasses.replace(file, ref=dataclasses.replace(file.ref, version=version))
    return dataclasses.replace(file, ref=None, problem=f"there was no artifact {file.ref.path!r} when the turn began")


def stage_files(
    workspace: Workspace,
    files: Sequence[EventFile],
    artifacts: ArtifactStore | None,
    owner: str,
    state: SkillState | None,
) -> list[dict[str, Any]]:
    """Copy the files of an event to ``work/inputs``. Return a record for each, with ``error`` for a file that fails.

    An artifact without a version is the one that this conversation saved last (``state``), else the newest of
    ``owner``. Blocks: call it from a thread. Raises :class:`~flink_skills.errors.ExecutionError` where the workspace
    cannot be used at all, or where the store cannot be reached for now.
    """
    if not files:
        return []
    workspace.ensure()
    return [_staged(workspace, file, artifacts, owner, state) for file in files]


def _staged(
    workspace: Workspace, file: EventFile, artifacts: ArtifactStore | None, owner: str, state: SkillState | None
) -> dict[str, Any]:
    try:
        if file.problem:
            raise ArtifactError(file.problem, "invalid")
        if file.fetched is not None:
            return _placed(workspace, file, file.fetched)
        data, kind, record = file.data, file.mime_type, {"from": "event://", "resolved": None, "version": None}
        if data is None:
            if file.ref is None:
                raise ArtifactError(f"{file.uri} was not fetched: only a turn fetches files", "unavailable")
            artifact, data = _loaded(file.ref, artifacts, owner, state)
            if file.sha256 and hashlib.sha256(data).hexdigest() != file.sha256:
                raise ArtifactError(f"{file.uri} has another sha256 than the event asks for", "invalid")
            kind = kind or artifact.mime_type
            record = {"from": file.uri, "resolved": artifact.ref, "version": artifact.version}
        to = f"{_INPUTS}/{file.name}"
        workspace.place(to, data=data, record=record, replace=True)
    except (WorkspacePathError, ArtifactError) as error:
        if error.retryable or file.fetched is not None:
            raise  # a store that cannot be reached for now: the turn is tried again
        return {"name": "", "original_name": file.original_name, "error": str(error)}
    return {"name": to, "original_name": file.original_name or file.name, "mime_type": kind, "size_bytes": len(data)}


def _placed(workspace: Workspace, file: EventFile, fetched: Fetched) -> dict[str, Any]:
    """Copy a file that was fetched, unless the workspace has it."""
    to = f"{_INPUTS}/{file.name}"
    if fetched.path:
        record = {"from": file.uri, "resolved": None, "version": fetched.sha256}
        workspace.place(to, source=Path(fetched.path), record=record, replace=True, max_bytes=max(1, fetched.size))
    name = file.original_name or file.name
    return {"name": to, "original_name": name, "mime_type": fetched.mime_type, "size_bytes": fetched.size}


def _loaded(ref: Reference, artifacts: ArtifactStore | None, owner: str, state: SkillState | None) -> Any:
    if artifacts is None:
        raise ArtifactError(f"{ref} cannot be read: this job keeps no artifacts (skills.artifacts.dir)", "unavailable")
    version = ref.version or (state.artifacts.get(ref.path) if state is not None else None)
    return artifacts.load(owner, ref.path, version)


def _entries(event: Any, field: str) -> Sequence[Any]:
    fields = fields_of_event(event)
    value = fields.get(field) if isinstance(fields, Mapping) else None
    if not isinstance(value, (list, tuple)) or hasattr(value, "_fields"):
        value = [value]
    entries = [fields_of_event(entry) for entry in value]
    return entries if any(map(_is_file, entries)) else ()


def _is_file(entry: Any) -> bool:
    """Whether an entry is meant for a file. A list of other things is none of ours, whatever it is called."""
    if not isinstance(entry, Mapping):
        return False
    data, text, uri = (entry.get(name) for name in _CONTENT)
    only_ours = set(entry) <= _FIELDS
    return (
        isinstance(data, (str, bytes, bytearray, memoryview))
        or (isinstance(text, str) and only_ours)
        or (isinstance(uri, str) and (only_ours or uri.startswith("artifact://")))
    )


def fields_of_event(value: Any) -> Any:
    """The fields of something structured, their values as they are; anything else as it is."""
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in (*type(value).model_fields, *(value.model_extra or ()))}
    if isinstance(value, type):
        return value
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    return dict(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, Mapping) else value


def file_of(entry: Any) -> EventFile:
    """The file of an entry; its name is a wish, or "" for none."""
    if not isinstance(entry, Mapping):
        return EventFile("", problem=f"an entry is {type(entry).__name__}: a file has data, text or a uri")
    given = entry.get("name")
    wish, name = (_safe_name(given), _shown(given)) if isinstance(given, str) else ("", "")
    kind = entry.get("mime_type")
    mime_type = kind.strip()[:_MAX_NAME_LENGTH] if isinstance(kind, str) else ""
    contents = [each for each in _CONTENT if entry.get(each) is not None]
    if len(contents) != 1:
        problem = f"the entry has {' and '.join(contents) or 'no content'}: pass exactly one of data, text and uri"
        return EventFile("", name, mime_type, problem=problem)
    value = entry[contents[0]]
    try:
        if contents[0] == "uri":
            sha256 = _digest(entry.get("sha256"))
            if isinstance(value, str) and len(value) > _MAX_URI:
                raise ValueError(f"the uri has more than {_MAX_URI} characters: use a shorter address")
            if isinstance(value, str) and is_remote(value):
                base = _shown(
                    unquote(re.split("[?#]", value.partition("://")[2])[0].partition("/")[2].rpartition("/")[2])
                )
                shown = redact(value)
                return EventFile(wish or _safe_name(base), name or base, mime_type, uri=shown, url=value, sha256=sha256)
            ref = _artifact(value)
            base = PurePosixPath(ref.path).name
            return EventFile(wish or _safe_name(base), name or base, mime_type, ref=ref, uri=str(ref), sha256=sha256)
        if contents[0] == "text":
            return EventFile(wish, name, mime_type, _text(value))
        return EventFile(wish, name, mime_type or _kind_in(value), _bytes(value))
    except (ValueError, ArtifactError) as error:
        uri = _shown(redact(value)) if contents[0] == "uri" and isinstance(value, str) else ""
        return EventFile("", name, mime_type, uri=uri, problem=str(error))


def _artifact(value: Any) -> Reference:
    if not isinstance(value, str):
        raise ValueError(f"the uri is {type(value).__name__}: expected https://…, s3://… or artifact://name")
    if not value.strip().lower().startswith("artifact://"):
        shown = _shown(redact(value))[:80]
        raise ValueError(f"the uri {shown!r} is not allowed in events: expected https://…, s3://… or artifact://name")
    return parse_reference(value)


def _digest(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not _SHA256.fullmatch(value.strip().lower()):
        raise ValueError("the sha256 is not a digest: expected 64 hexadecimal digits")
    return value.strip().lower()


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"the text is {type(value).__name__}: pass a string, or bytes as data")
    return value.encode("utf-8", "replace")


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, str):
        raise ValueError(f"the data is {type(value).__name__}: pass bytes, or a base64 string")
    head = _DATA_URI.match(value)
    plain = _SPACE.sub("", value[head.end() :] if head else value)
    try:
        return base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the data is not valid base64: encode it, or pass it as text") from None


def _kind_in(value: Any) -> str:
    head = _DATA_URI.match(value) if isinstance(value, str) else None
    return head[1] if head else ""


def _safe_name(original: str) -> str:
    """A name that is no path, no option and nothing that a shell would read: whoever sent the event chose it."""
    base = original.replace("\\", "/").rstrip("/").rpartition("/")[2]
    # Normalization takes quadratic time for many accents on one letter. Both ends of a name say what it is.
    base = unicodedata.normalize("NFC", base if len(base) <= 2 * _MAX_END else base[:_MAX_END] + base[-_MAX_END:])
    name = _UNSAFE.sub("_", base).lstrip(".-").rstrip(".")
    if not name.strip("_"):
        return ""
    while len(name.encode()) > _MAX_NAME_LENGTH:
        stem, dot, suffix = name.rpartition(".")
        # The end of a name says what it is, unless the end is most of it.
        name = f"{stem[:-1]}{dot}{suffix}" if stem and len(suffix.encode()) < _MAX_NAME_LENGTH // 2 else name[:-1]
    return name


def free_name(name: str, taken: Collection[str]) -> str:
    """Return ``name`` with a number that makes it different from the ``taken`` names, if it is one of them."""
    stem, dot, suffix = name.partition(".")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{stem}-{number}{dot}{suffix}"
    return free


def _shown(name: str) -> str:
    """A name as a record has it: what cannot be printed is escaped."""
    return printable(name[:_MAX_SHOWN], lambda char: ascii(char)[1:-1])
