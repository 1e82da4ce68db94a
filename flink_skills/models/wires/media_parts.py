"""Images, PDF documents and audio as parts of messages."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from flink_skills.models.media import has_media
from flink_skills.models.messages import Media, Message
from flink_skills.models.results import NO_TEXT

_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}
_NO_URL = "this API does not read it from a URL"


def parts(text: dict[str, Any], media: Sequence[Media], part: Callable[[Media], dict[str, Any]]) -> list[Any]:
    """Return the parts of a message: its text, unless it is blank, and its media."""
    return [*([text] if str(text["text"]).strip() else ()), *map(part, media)]


def user_content(
    messages: Sequence[Message], text: Callable[[str], dict[str, Any]], part: Callable[[Media], dict[str, Any]]
) -> str | list[Any]:
    """Return the content of one message of the user with all of ``messages``: a text if they have no media."""
    if has_media(messages):
        return [of for message in messages for of in parts(text(message.content), message.media, part)]
    return "\n\n".join(message.content for message in messages if message.content.strip()) or NO_TEXT


def heading(name: str) -> str:
    """Return the text before media of a tool result in an API whose results contain only text."""
    return f"Content of the result of {name}:"


def chat_part(media: Media) -> dict[str, Any]:
    """Return media as a part of a chat completion."""
    if media.kind == "image":
        return {"type": "image_url", "image_url": {"url": _url(media)}}
    if media.data is None:
        return {"type": "text", "text": media.instead(_NO_URL)}
    if media.kind == "audio":
        return _audio(media)
    return {"type": "file", "file": {"filename": media.name, "file_data": _url(media)}}


def responses_part(media: Media) -> dict[str, Any]:
    """Return media as a part of an item of a response."""
    if media.kind == "image":
        return {"type": "input_image", "image_url": _url(media), "detail": "auto"}
    if media.kind == "audio":
        return _audio(media) if media.data is not None else {"type": "input_text", "text": media.instead(_NO_URL)}
    if media.data is None:
        return {"type": "input_file", "file_url": media.location}
    return {"type": "input_file", "filename": media.name, "file_data": _url(media)}


def anthropic_block(media: Media) -> dict[str, Any]:
    """Return media as a block of a message of Anthropic."""
    if media.kind == "audio":
        return {"type": "text", "text": media.instead("this API does not accept audio")}
    source = {"type": "url", "url": media.location}
    if media.data is not None:
        source = {"type": "base64", "media_type": media.media_type, "data": _encoded(media)}
    return {"type": "image" if media.kind == "image" else "document", "source": source}


def _audio(media: Media) -> dict[str, Any]:
    return {
        "type": "input_audio",
        "input_audio": {"data": _encoded(media), "format": _FORMATS.get(media.media_type, "wav")},
    }


def _url(media: Media) -> str:
    return media.location if media.data is None else f"data:{media.media_type};base64,{_encoded(media)}"


def _encoded(media: Media) -> str:
    return base64.b64encode(media.data or b"").decode()
