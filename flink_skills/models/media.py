"""The kinds of media that a chat model accepts, and the sentences for the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.models.messages import Media, Message, ToolMessage, UserMessage
from flink_skills.models.setup import ModelSetup
from flink_skills.tools.media import KINDS

_SEES = frozenset({"image", "pdf"})
_DEFAULTS = {
    "openai": _SEES,
    "openai-responses": _SEES,
    "azure": _SEES,
    "anthropic": _SEES,
    "google": frozenset(KINDS),
    "google-gla": frozenset(KINDS),
    "google-vertex": frozenset(KINDS),
}
_REASONS = {
    "image": "this model cannot see images",
    "pdf": "this model cannot read PDF documents",
    "audio": "this model cannot hear audio",
}

_media_of = attrgetter("media")


def accepted_kinds(setup: ModelSetup, *, place: str = "") -> frozenset[str]:
    """Return the kinds of media that the model of ``setup`` accepts.

    They are those of ``extra["media"]``, else those that models of the provider usually accept: images and PDF
    documents for OpenAI, Azure OpenAI and Anthropic, all kinds for Google, none for others.

    Raises:
        ConfigError: ``extra["media"]`` is not a list.
        UnknownNameError: It names a kind that does not exist. ``place`` is the location of the setup, for the message.

    >>> sorted(accepted_kinds(ModelSetup("openai-compatible", "qwen-vl", extra={"media": ["image"]})))
    ['image']
    """
    declared: Any = setup.extra.get("media")
    if declared is None:
        return _DEFAULTS.get(setup.provider, frozenset())
    if isinstance(declared, str) or not isinstance(declared, Collection):
        where = f"{place}: " if place else ""
        raise ConfigError(f"{where}media is {declared!r}: write a list of kinds, such as [image, pdf]")
    for kind in declared:
        if kind not in KINDS:
            raise UnknownNameError("kind of media", str(kind), KINDS, place=place or f"model {setup.label}")
    return frozenset(declared)


def has_media(messages: Sequence[Message]) -> bool:
    """Return whether a message has media."""
    return any(map(_media_of, messages))


def messages_with(messages: Sequence[Message], place: Callable[[Media], Media | str]) -> list[Message]:
    """Return the messages with what ``place`` returns for each of their media, in order.

    A sentence is appended to the text of the message.
    """
    return [_placed(message, place) if message.media else message for message in messages]


def for_model(messages: Sequence[Message], accepts: Collection[str]) -> Sequence[Message]:
    """Return the messages with sentences for the media that a model does not accept."""
    if not has_media(messages):
        return messages
    return messages_with(messages, lambda media: unaccepted(media, accepts) or media)


def _placed(message: Message, place: Callable[[Media], Media | str]) -> Message:
    placed = [place(of) for of in message.media]
    sentences = [of for of in placed if isinstance(of, str)]
    kept = tuple(of for of in placed if isinstance(of, Media))
    content = "\n".join(part for part in (message.content, *sentences) if part)
    if isinstance(message, ToolMessage):
        return replace(message, content=content, media=kept)
    return UserMessage(content, kept)


def unaccepted(media: Media, accepts: Collection[str]) -> str | None:
    """Return the sentence for media that a model does not accept. Return None if it accepts them.

    >>> unaccepted(Media("image/png", "photo.png", 24_000, ""), ["pdf"])
    '[image photo.png, 24 KB: this model cannot see images]'
    """
    if media.kind in accepts:
        return None
    return media.instead(_REASONS.get(media.kind, f"content of type {media.media_type} is not supported"))
