"""Images, PDF documents and audio that models receive next to text.

A message contains a :class:`Media`, and state contains its form without the bytes: name, type, size and location.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.execution.workspace import recognized_type
from flink_skills.texts import printable

# By kind: each supported media type with the suffixes of its files. The first one names a file without a name.
_TYPES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "image": {
        "image/png": (".png",),
        "image/jpeg": (".jpg", ".jpeg"),
        "image/gif": (".gif",),
        "image/webp": (".webp",),
    },
    "pdf": {"application/pdf": (".pdf",)},
    "audio": {"audio/wav": (".wav",), "audio/mpeg": (".mp3",)},
}
#: The kind of each supported media type. A chat model accepts kinds.
MEDIA_TYPES: Mapping[str, str] = {media_type: kind for kind, types in _TYPES.items() for media_type in types}
#: The kinds of media.
KINDS = tuple(_TYPES)
_SUFFIXES = {media_type: suffixes for types in _TYPES.values() for media_type, suffixes in types.items()}
_MAX_NAME = 120
# Estimates, the same for each model: an image of a megapixel, a page of a PDF, a second of speech.
_TOKENS_OF_IMAGE = 1_500
_BYTES_OF_PAGE, _TOKENS_OF_PAGE = 50_000, 1_500
_BYTES_OF_SECOND, _TOKENS_OF_SECOND = 16_000, 25


@dataclass(frozen=True)
class Media:
    """An image, a PDF document or audio.

    ``media_type`` is a key of :data:`MEDIA_TYPES`. ``size`` is in bytes, 0 if it is unknown. ``location`` is the
    reference of an artifact (``artifact://name@version``), an ``https://`` URL from which the provider of the model
    reads it, or the empty string if it exists only in memory. ``data`` is its content. State never contains ``data``:
    it is loaded from ``location`` before a request.

    >>> Media.of(b"%PDF-1.7 ...", "contract.pdf")
    Media(media_type='application/pdf', name='contract.pdf', size=12, location='')
    """

    media_type: str
    name: str
    size: int
    location: str
    data: bytes | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, data: bytes, name: str = "") -> Media:
        """Return ``data`` as media. The type is read from the bytes. Without ``name`` it is named after its kind.

        Raises :class:`ConfigError` if the bytes are of no supported type.
        """
        kind = recognized_type(data)
        if kind not in MEDIA_TYPES:
            what = f"{name or 'the content'} ({kind or 'unrecognized bytes'})"
            raise ConfigError(f"{what} cannot be passed to a model: supported are {', '.join(MEDIA_TYPES)}")
        return cls(kind, _name(name) or f"{MEDIA_TYPES[kind]}{_SUFFIXES[kind][0]}", len(data), "", bytes(data))

    @classmethod
    def recognized(cls, data: bytes, name: str) -> Media | None:
        """Return ``data`` as media, None if the bytes are of no supported type."""
        return cls.of(data, name) if recognized_type(data) in MEDIA_TYPES else None

    @property
    def kind(self) -> str:
        """``image``, ``pdf`` or ``audio``."""
        return MEDIA_TYPES.get(self.media_type, "")

    @property
    def suffix(self) -> str:
        """The usual suffix of files of its type, such as ``.png``."""
        return _SUFFIXES.get(self.media_type, ("",))[0]

    @property
    def summary(self) -> str:
        """Kind, name and size.

        >>> Media("image/png", "photo.png", 24_000, "").summary
        'image photo.png, 24 KB'
        """
        kind = self.kind.upper() if self.kind == "pdf" else self.kind or self.media_type
        return f"{kind} {self.name}, {_shown_size(self.size)}" if self.size else f"{kind} {self.name}"

    @property
    def about_tokens(self) -> int:
        """The estimated number of tokens, the same for each model."""
        if self.kind == "pdf":
            return _TOKENS_OF_PAGE * (1 + self.size // _BYTES_OF_PAGE)
        if self.kind == "audio":
            return _TOKENS_OF_SECOND * (1 + self.size // _BYTES_OF_SECOND)
        return _TOKENS_OF_IMAGE

    def instead(self, reason: str) -> str:
        """Return the sentence that a model reads if it does not receive this.

        >>> Media("image/png", "photo.png", 24_000, "").instead("this model cannot see images")
        '[image photo.png, 24 KB: this model cannot see images]'
        """
        return f"[{self.summary}: {reason}]"


def has_media_name(name: str, accepts: Collection[str]) -> bool:
    """Return whether a file of this name is usually of an accepted kind.

    >>> has_media_name("assets/Diagram.PNG", {"image"}), has_media_name("notes.md", {"image"})
    (True, False)
    """
    lower = name.lower()
    return any(MEDIA_TYPES[of] in accepts and lower.endswith(suffixes) for of, suffixes in _SUFFIXES.items())


def media_to_json(media: Sequence[Media]) -> list[list[Any]]:
    """Return the state form of media, without the bytes."""
    return [[of.media_type, of.name, of.size, of.location] for of in media]


def media_from_json(data: Sequence[Sequence[Any]]) -> tuple[Media, ...]:
    """Return the media of a state form."""
    return tuple(Media(*of) for of in data)


def _name(name: str) -> str:
    """Return ``name`` as one line in which no character ends the sentence about it."""
    plain = printable(name.strip(), lambda char: "_").replace("[", "_").replace("]", "_")
    return plain[-_MAX_NAME:]


def _shown_size(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{size // 1000} KB"
