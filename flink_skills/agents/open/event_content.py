"""Images, PDF documents and audio in the fields of an event that its agent declares as content."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flink_skills.agents.open.named_files import Durable, NamedFiles
from flink_skills.agents.open.turn_media import TurnMedia
from flink_skills.agents.state.files import EventFile, fields_of_event, file_of, free_name
from flink_skills.agents.state.fingerprints import fingerprint
from flink_skills.agents.state.journal import Asked
from flink_skills.artifacts import ArtifactError
from flink_skills.errors import ConfigError, TurnError
from flink_skills.models.messages import Media

_STEP = "content#0"


@dataclass(frozen=True)
class ContentItem:
    """An item in a content field of an event. ``name`` is unique in the event."""

    field: str
    name: str
    file: EventFile

    def problem(self, text: str) -> TurnError:
        """Return the error of the event."""
        shown = self.file.original_name or self.file.uri
        return TurnError(f"content field {self.field!r}{f', {shown}' if shown else ''}: {text}")

    def refused(self, error: TurnError) -> TurnError:
        """Return the error for an address that cannot be read. ``error`` names the address."""
        return TurnError(f"content field {self.field!r}: {str(error).removeprefix('event file ')}")


@dataclass(frozen=True)
class ContentScope:
    """The services with which a turn reads an event's content.

    ``durable`` runs a durable step, ``call_id`` returns the id of a step, ``artifacts`` the newest version of each
    artifact that the conversation saved.
    """

    media: TurnMedia
    durable: Durable
    call_id: Callable[[str], str]
    artifacts: Callable[[], Mapping[str, str]]
    keeps_conversation: bool


class EventContent:
    """Reads the fields of events that contain media. ``fields`` are their names, in the order in which models get them.

    A value is bytes, text (base64, a ``data:`` URL, an address under a prefix of ``skills.files.allowed``, or
    ``artifact://name[@version]``), a mapping with ``data`` or ``uri`` and optionally ``name`` and ``sha256``, or a list
    of these.
    """

    def __init__(self, fields: Sequence[str], files: NamedFiles) -> None:
        self._fields = tuple(fields)
        self._files = files

    def is_in(self, event: Any) -> bool:
        """Return whether a content field of the event has a value."""
        for field in self._fields:
            value = event.get(field) if isinstance(event, Mapping) else getattr(event, field, None)
            if value is not None and not (isinstance(value, (str, bytes, list, tuple)) and not value):
                return True
        return False

    async def read(self, event: Any, scope: ContentScope) -> tuple[Any, tuple[Media, ...]]:
        """Return the event as models read it, and its media.

        The event has name, type and size instead of the content. Addresses and artifacts are read in one durable step:
        a replay uses what the step stored.

        Raises :class:`TurnError` that names the field: for unsupported content, an address that is not
        allowed or cannot be read, and content over the limits.
        """
        items = await asyncio.to_thread(content_items, event, self._fields)
        for item in items:
            if item.file.problem:
                raise item.problem(item.file.problem)
            if refusal := self._files.refusal(item.file):
                raise item.refused(TurnError(refusal))
        if items and (problem := scope.media.over_limit(len(items), 0)):
            raise items[-1].problem(f"the event has {len(items)} items, {problem}: send fewer, or raise that option")
        found = await self._found(items, scope)
        size = 0
        for item, of in zip(items, found, strict=True):
            size += of.size
            _check_size(item, size, scope)
        kept = [await _kept(item, of, scope) for item, of in zip(items, found, strict=True)]
        return _shown(event, items, kept), tuple(kept)

    async def _found(self, items: Sequence[ContentItem], scope: ContentScope) -> list[Media]:
        """Return the media of all items. Those that the event does not contain are read in a durable step."""
        named = [item for item in items if item.file.data is None]
        if not named:
            return [_recognized(item, item.file.data or b"") for item in items]
        fresh: dict[str, bytes] = {}

        async def fetch() -> list[list[Any]]:
            records, size = [], 0
            for item in named:
                media = await self._fetched(item, scope)
                size += media.size
                _check_size(item, size, scope)
                data = fresh[item.name] = media.data or b""
                if not media.location:
                    media = await _stored(item, media, scope)
                digest = hashlib.sha256(data).hexdigest()
                records.append([media.media_type, media.name, media.size, media.location, digest])
            return records

        asked = Asked(fingerprint([[item.name, item.file.uri] for item in named]))
        records = iter(await scope.durable(_STEP, fetch, asked))
        found = []
        for item in items:
            if item.file.data is not None:
                found.append(_recognized(item, item.file.data))
                continue
            *fields, digest = next(records)
            media = Media(*fields)
            if not media.location.startswith("artifact://"):
                data = fresh.get(item.name)
                if data is None:
                    data = await self._again(item, digest, scope)
                media = scope.media.hold(replace(media, data=data), media.location)
            found.append(media)
        return found

    async def _again(self, item: ContentItem, digest: str, scope: ContentScope) -> bytes:
        """Read an address once more, in a job that stores no artifacts, for the replay of a turn."""
        data = (await self._fetched(item, scope)).data or b""
        if hashlib.sha256(data).hexdigest() != digest:
            raise item.problem(
                "the content changed after the turn started: send the event again to use the new content"
            )
        return data

    async def _fetched(self, item: ContentItem, scope: ContentScope) -> Media:
        """Read an address or an artifact now. Return its media with data, and with the location of an artifact."""
        file, store = item.file, scope.media.store
        if file.ref is not None:
            version = file.ref.version or scope.artifacts().get(file.ref.path)
            if store.artifacts is None:
                raise item.problem("the job stores no artifacts: set skills.artifacts.dir")
            load, owner = store.artifacts.load, scope.media.owner
            try:
                artifact, data = await asyncio.to_thread(load, owner, file.ref.path, version)
            except ArtifactError as error:
                raise item.problem(str(error)) from None
            if file.sha256 and hashlib.sha256(data).hexdigest() != file.sha256:
                raise item.problem("the sha256 of the content differs from the one in the event")
            return replace(_recognized(item, data), location=artifact.ref)
        try:
            data = await self._files.read(file, store.max_bytes, scope.call_id(_STEP))
        except TurnError as error:
            raise item.refused(error) from None
        return _recognized(item, data)


def _check_size(item: ContentItem, size: int, scope: ContentScope) -> None:
    """Raise :class:`TurnError` if the content of the event up to ``item`` has more bytes than the limit."""
    if problem := scope.media.over_limit(1, size):
        raise item.problem(f"the content of the event has {problem}: send less, or raise that option")


async def _kept(item: ContentItem, media: Media, scope: ContentScope) -> Media:
    if media.data is None:
        return media
    if not scope.keeps_conversation:
        # The event has it, whenever the turn is repeated.
        return scope.media.hold(media)
    return await _stored(item, media, scope)


async def _stored(item: ContentItem, media: Media, scope: ContentScope) -> Media:
    try:
        return await scope.media.keep(media)
    except ArtifactError as error:
        raise item.problem(str(error)) from None


def _recognized(item: ContentItem, data: bytes) -> Media:
    try:
        media = Media.of(data, item.name)
    except ConfigError as error:
        raise TurnError(f"content field {item.field!r}: {error}") from None
    return media if item.file.name else replace(media, name=f"{item.name}{media.suffix}")


def content_items(event: Any, fields: Sequence[str]) -> list[ContentItem]:
    """Return the items of the content fields of an event, each with a unique name. Decodes base64, so it may block.

    >>> [item.name for item in content_items({"photos": [b"...", {"name": "b.png", "data": b"..."}]}, ["photos"])]
    ['photos', 'b.png']
    """
    values = fields_of_event(event)
    found: list[ContentItem] = []
    names: set[str] = set()
    for field in fields:
        value = values.get(field) if isinstance(values, Mapping) else None
        entries = value if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") else [value]
        for entry in entries:
            if entry is None or (isinstance(entry, (str, bytes)) and not entry):
                continue
            file = file_of(_entry(entry))
            name = free_name(file.name or field, names)
            names.add(name)
            found.append(ContentItem(field, name, file))
    return found


def _entry(value: Any) -> Any:
    """Return a value as the mapping of a file."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"data": value}
    if isinstance(value, str):
        return {"uri": value.strip()} if _is_address(value) else {"data": value}
    return fields_of_event(value)


def _is_address(text: str) -> bool:
    """Return whether a text is an address, and not base64 or a ``data:`` URL."""
    scheme, sign, _ = text[:64].strip().partition("://")
    return bool(sign) and scheme.isalnum()


def _shown(event: Any, items: Sequence[ContentItem], media: Sequence[Media]) -> Any:
    """Return the event with name, type and size of the content in its fields."""
    if not items:
        return event
    shown: dict[str, list[dict[str, Any]]] = {}
    for item, of in zip(items, media, strict=True):
        record = {"name": of.name, "media_type": of.media_type, "size_bytes": of.size}
        shown.setdefault(item.field, []).append(record)
    return {**fields_of_event(event), **{field: of[0] if len(of) == 1 else of for field, of in shown.items()}}
