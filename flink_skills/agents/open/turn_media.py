"""Stores the media of conversations, and loads them for a request.

Messages, journals and sessions contain locations. The bytes are in the artifact store of the job. In a job without one
they exist until the turn's end, in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from flink_skills.artifacts import ArtifactError, ArtifactStore, parse_reference
from flink_skills.models.media import has_media, messages_with, unaccepted
from flink_skills.models.messages import Media, Message
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.base import ToolResult

_CACHE_BYTES = 32 << 20
_GONE = "the content is no longer stored"
_OLDER = "omitted, because a request has room only for newer content"


class MediaStore:
    """The media of an open agent: its artifact store, and a cache of 32 MiB of the content that was used last.

    ``max_count`` and ``max_bytes`` are the limits of ``skills.content.*``; 0 means no limit. Any thread may call it.
    """

    def __init__(self, artifacts: ArtifactStore | None, config: SkillConfig) -> None:
        self.artifacts = artifacts
        self.max_count: int = config.get(SkillOptions.CONTENT_MAX_COUNT)
        self.max_bytes: int = config.get(SkillOptions.CONTENT_MAX_BYTES)
        self._cached: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def save(self, artifacts: ArtifactStore, owner: str, media: Media, data: bytes) -> Media:
        """Store ``data``, the content of ``media``, as an artifact of ``owner``. Return the media with its location.

        Blocks. Raises :class:`ArtifactError` if the store rejects it or cannot be reached.
        """
        location = artifacts.save(owner, _artifact_name(media.name), data, media.media_type).ref
        self._cache((owner, location), data)
        return replace(media, location=location, data=None)

    def cached(self, owner: str, location: str) -> bytes | None:
        """Return the content of a location if it is in memory."""
        with self._lock:
            data = self._cached.get((owner, location))
            if data is not None:
                self._cached.move_to_end((owner, location))
            return data

    def load(self, owner: str, location: str) -> bytes | None:
        """Return the content of a location, None if it does not exist any more.

        Blocks. Raises :class:`ArtifactError` if the store cannot be reached at present.
        """
        if self.artifacts is None or not location.startswith("artifact://"):
            return None
        try:
            reference = parse_reference(location)
            data: bytes = self.artifacts.load(owner, reference.path, reference.version)[1]
        except ArtifactError as error:
            if error.retryable:
                raise
            return None
        self._cache((owner, location), data)
        return data

    def forget(self, owner: str) -> None:
        """Remove the content of an owner from memory."""
        with self._lock:
            for key in [key for key in self._cached if key[0] == owner]:
                self._size -= len(self._cached.pop(key))

    def _cache(self, key: tuple[str, str], data: bytes) -> None:
        with self._lock:
            if len(data) > _CACHE_BYTES or key in self._cached:
                return
            self._cached[key] = data
            self._size += len(data)
            while self._size > _CACHE_BYTES:
                self._size -= len(self._cached.popitem(last=False)[1])


class TurnMedia:
    """The media that one agent shows its models in a turn. ``owner`` is the owner of the artifacts of its key."""

    def __init__(self, store: MediaStore, owner: str) -> None:
        self.store = store
        self.owner = owner
        self._memory: dict[str, bytes] = {}

    def hold(self, media: Media, location: str = "") -> Media:
        """Keep the data until the turn's end. Return the media without data, with their location."""
        data = media.data or b""
        location = location or f"turn://{hashlib.sha256(data).hexdigest()[:16]}/{media.name}"
        self._memory[location] = data
        return replace(media, location=location, data=None)

    async def keep(self, media: Media) -> Media:
        """Store the data, in the artifact store if the job has one. Return the media without data.

        Raises :class:`ArtifactError` if the store rejects it or cannot be reached.
        """
        if media.data is None:
            return media
        artifacts = self.store.artifacts
        if artifacts is None:
            return self.hold(media)
        return await asyncio.to_thread(self.store.save, artifacts, self.owner, media, media.data)

    async def kept_result(self, name: str, result: ToolResult) -> ToolResult:
        """Return the result of the tool ``name`` as the journal contains it: its media are stored.

        A sentence in its text replaces media over the limits, and media that cannot be stored.
        """
        if not result.media:
            return result
        kept: list[Media] = []
        sentences: list[str] = []
        size = 0
        for media in result.media:
            size += media.size
            problem = self.over_limit(len(kept) + 1, size)
            if problem:
                sentences.append(media.instead(f"omitted, because the result of {name} has {problem}"))
                size -= media.size
                continue
            try:
                kept.append(await self.keep(media))
            except ArtifactError as error:
                sentences.append(media.instead(f"storing the content failed: {error}"))
        content = "\n".join(part for part in (result.content, *sentences) if part)
        sections = result.sections if not sentences else ()
        return replace(result, content=content, media=tuple(kept), sections=sections)

    def over_limit(self, count: int, size: int) -> str:
        """Return which limit ``count`` items of ``size`` bytes exceed, an empty string for none."""
        if 0 < self.store.max_count < count:
            return f"more items than {SkillOptions.CONTENT_MAX_COUNT.key} = {self.store.max_count}"
        if 0 < self.store.max_bytes < size:
            return f"more bytes than {SkillOptions.CONTENT_MAX_BYTES.key} = {self.store.max_bytes:,}"
        return ""

    async def loaded(self, messages: Sequence[Message], accepts: Collection[str]) -> Sequence[Message]:
        """Return the messages of a request to a model that accepts these kinds.

        Media have their data, or the URL from which the provider reads them. A sentence replaces those that the model
        does not accept, those that do not exist any more, and the oldest if all of them exceed the limits.
        """
        if not has_media(messages):
            return messages
        all_media = [media for message in messages for media in message.media]
        accepted = [media for media in all_media if media.kind in accepts]
        newest = next((m.media for m in reversed(messages) if any(of.kind in accepts for of in m.media)), ())
        left_out = self._left_out(accepted, sum(of.kind in accepts for of in newest))
        data = await self._data({of.location: of for of in accepted[left_out:]})
        number = 0

        def place(media: Media) -> Media | str:
            nonlocal number
            sentence = unaccepted(media, accepts)
            if sentence is not None:
                return sentence
            number += 1
            if number <= left_out:
                return media.instead(_OLDER)
            if media.location in data:
                found = data[media.location]
                return media.instead(_GONE) if found is None else replace(media, data=found, size=len(found))
            return media

        return messages_with(messages, place)

    def _left_out(self, media: Sequence[Media], newest: int) -> int:
        """Return how many of the oldest media a request does not contain.

        They are left out in batches of half of the limit, so that a prefix that a provider caches seldom changes. The
        ``newest`` media, those of one message, are always included.
        """
        batch = max(1, self.store.max_count // 2)
        left_out = 0
        while left_out < len(media) - newest:
            rest = media[left_out:]
            if not self.over_limit(len(rest), sum(of.size for of in rest)):
                break
            left_out = min(left_out + batch, len(media) - newest)
        return left_out

    async def _data(self, media: Mapping[str, Media]) -> dict[str, bytes | None]:
        """Return the content by location. A location that the provider reads is not among them."""
        found: dict[str, bytes | None] = {}
        missing = []
        for location, of in media.items():
            if of.data is not None or location.startswith("https://"):
                continue
            data = self._memory.get(location) or self.store.cached(self.owner, location)
            if data is None:
                missing.append(location)
            found[location] = data
        if missing:
            load = self.store.load
            loaded = await asyncio.gather(*(asyncio.to_thread(load, self.owner, of) for of in missing))
            found.update(zip(missing, loaded, strict=True))
        return found


def _artifact_name(name: str) -> str:
    """Return the name of the artifact for content with any name."""
    plain = "".join(char if char.isalnum() or char in "._- " else "_" for char in name).strip(". ")
    return f"content/{plain[-80:] or 'content'}"
