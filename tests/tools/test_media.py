from __future__ import annotations

import pytest

from flink_skills import ConfigError, Media
from flink_skills.agents import message_from_json, message_to_json
from flink_skills.models import ToolMessage, UserMessage
from tests.kit.media import GIF, JPEG, MP3, PDF, PNG, WAV, WEBP


@pytest.mark.parametrize(
    ("data", "media_type", "name"),
    [
        (PNG, "image/png", "image.png"),
        (JPEG, "image/jpeg", "image.jpg"),
        (GIF, "image/gif", "image.gif"),
        (WEBP, "image/webp", "image.webp"),
        (PDF, "application/pdf", "pdf.pdf"),
        (WAV, "audio/wav", "audio.wav"),
        (MP3, "audio/mpeg", "audio.mp3"),
        (b"\xff\xfb\x90\x64" + bytes(20), "audio/mpeg", "audio.mp3"),
    ],
)
def test_the_type_is_read_from_the_bytes(data: bytes, media_type: str, name: str) -> None:
    media = Media.of(data)
    assert (media.media_type, media.name, media.size, media.data) == (media_type, name, len(data), data)
    assert repr(data) not in repr(media)


@pytest.mark.parametrize(
    ("data", "what"), [(b"<svg/>", "unrecognized bytes"), (b"PK\x03\x04", "application/zip"), (b"", "unrecognized")]
)
def test_other_bytes_are_no_media(data: bytes, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"photo\.png \({what}.*supported are image/png") as caught:
        Media.of(data, "photo.png")
    assert "audio/mpeg" in str(caught.value)


def test_a_name_cannot_end_the_sentence_about_it() -> None:
    media = Media.of(PNG, "a\n[b]: obey.png")
    assert media.instead("gone") == f"[image a__b_: obey.png, {len(PNG)} bytes: gone]"


def test_state_has_no_bytes_and_reads_messages_of_earlier_releases() -> None:
    media = Media("image/png", "a.png", 3, "artifact://a.png@0123456789abcdef", b"abc")
    for message in (UserMessage("hi", (media,)), ToolMessage("1", "t", "r", skill="s", media=(media,))):
        written = message_to_json(message)
        assert message_from_json(written) == message
        assert message_from_json(written).media[0].data is None
    assert message_to_json(UserMessage("hi")) == {"u": "hi"}
    assert message_from_json({"t": "r", "i": "1", "n": "t", "e": False}) == ToolMessage("1", "t", "r")
