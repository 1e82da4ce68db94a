"""How a source is declared: kind, location, a pin of its content and the form of its skills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flink_skills.endpoint import redact
from flink_skills.errors import ConfigError, near_misses

__all__ = ["FORMATS", "SourceSpec"]

FORMATS = ("skill", "heading")

_PINS = re.compile(r"#((?:sha256|format)=[^#]*)\Z", re.DOTALL)
_UNKNOWN_PIN = re.compile(r"#([\w-]+)=[^#/]*\Z")
_SHA256 = re.compile(r"(?:sha256:)?([0-9A-Fa-f]{64})")
_WORDS = ("sha256", "format")


@dataclass(frozen=True, repr=False)
class SourceSpec:
    """One declared source.

    ``sha256`` pins the bytes of an archive or of a bare ``SKILL.md``. ``format`` is ``"skill"`` for ``SKILL.md``
    files with front matter, ``"heading"`` for those that have only a first heading.

    >>> SourceSpec.parse("path", "/opt/notes#format=heading").format
    'heading'
    """

    kind: str
    location: str
    sha256: str | None = None
    format: str = "skill"

    def __post_init__(self) -> None:
        for name in ("kind", "location"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"skill source: its {name} is a {type(getattr(self, name)).__name__}; give a string")
        if self.sha256 is not None:
            match = _SHA256.fullmatch(self.sha256) if isinstance(self.sha256, str) else None
            if match is None:
                raise ConfigError(f"skill source {self.shown}: sha256 needs 64 hexadecimal digits, as sha256sum prints")
            object.__setattr__(self, "sha256", match.group(1).lower())
        if self.format not in FORMATS:
            message = f"skill source {self.shown}: there is no format {str(self.format)[:40]!r}"
            raise ConfigError(f"{message}; use {' or '.join(repr(name) for name in FORMATS)}")

    @classmethod
    def parse(cls, kind: str, given: str | Mapping[str, Any] | SourceSpec) -> SourceSpec:
        """Read a declaration: ``location#sha256=…&format=…``, a mapping, or a spec.

        A mapping names the location by its kind or ``location``, and pins beside it:
        ``{"url": "https://…", "sha256": "…"}``. A path may contain ``#``: only what the last one begins with
        ``sha256=`` or ``format=`` is a pin. Raises :class:`ConfigError`.
        """
        if isinstance(given, SourceSpec):
            if given.kind != kind:
                raise ConfigError(f"skill source {given.shown}: is declared as {kind}, but it is a {given.kind}")
            return given
        if isinstance(given, Mapping):
            return cls._of_mapping(kind, given)
        if not isinstance(given, str):
            message = f"skill {kind}: a value of type {type(given).__name__} is not a valid source"
            raise ConfigError(f"{message}; give a string or a mapping such as {{'{kind}': …, 'sha256': …}}")
        found = _PINS.search(given)
        if found is None:
            unknown = _UNKNOWN_PIN.search(given) if kind not in ("path", "resource") else None
            if unknown is not None:
                # Left alone it would be a pin that nobody checks.
                message = f"skill source {_shown(kind, given)}: {unknown[1][:40]!r} after '#' is unknown"
                raise ConfigError(f"{message}{_near(unknown[1], _WORDS)}; write #sha256=…, #format=… or both with '&'")
            return cls(kind, given)
        location = given[: found.start()]
        pins: dict[str, str] = {}
        for part in found.group(1).split("&"):
            word, _, value = part.partition("=")
            if word not in _WORDS or word in pins:
                problem = "is duplicated" if word in pins else f"is unknown{_near(word, _WORDS)}"
                message = f"skill source {_shown(kind, location)}: {word[:40]!r} after '#' {problem}"
                raise ConfigError(f"{message}; write #sha256=…, #format=… or both with '&'")
            pins[word] = value
        return cls(kind, location, pins.get("sha256"), pins.get("format", "skill"))

    @classmethod
    def _of_mapping(cls, kind: str, given: Mapping[str, Any]) -> SourceSpec:
        names = (kind, "location", *_WORDS)
        for name in given:
            if name not in names:
                known = ", ".join(dict.fromkeys(names))
                raise ConfigError(f"skill {kind}: {str(name)[:40]!r} is unknown{_near(str(name), names)}; use {known}")
        locations = [given[name] for name in dict.fromkeys((kind, "location")) if name in given]
        if len(locations) != 1 or not isinstance(locations[0], str):
            raise ConfigError(f"skill {kind}: the declaration needs one string {kind!r}; write {{'{kind}': …}}")
        spec = cls.parse(kind, locations[0])
        pins = {name: given[name] for name in _WORDS if given.get(name) is not None}
        merged = cls(kind, spec.location, pins.get("sha256", spec.sha256), pins.get("format", spec.format))
        if spec.sha256 not in (None, merged.sha256) or spec.format not in ("skill", merged.format):
            raise ConfigError(f"skill source {spec.shown}: is pinned twice, and differently; keep one of the pins")
        return merged

    @property
    def shown(self) -> str:
        """The location as messages may show it."""
        return _shown(self.kind, self.location)

    @property
    def public(self) -> SourceSpec:
        """The source with the location as messages may show it, and with the same pins.

        >>> str(SourceSpec.parse("url", "https://me:pw@host/a.zip?sig=1#format=heading").public)
        'https://host/a.zip#format=heading'
        """
        return replace(self, location=self.shown)

    def __str__(self) -> str:
        pins = [f"sha256={self.sha256}"] if self.sha256 else []
        # Said although it is the default where the location alone would be read as one with pins.
        if self.format != "skill" or (not pins and (_PINS.search(self.location) or _UNKNOWN_PIN.search(self.location))):
            pins.append(f"format={self.format}")
        return self.location + (f"#{'&'.join(pins)}" if pins else "")

    def __repr__(self) -> str:
        return f"SourceSpec({self.kind!r}, {self.shown!r}, sha256={self.sha256!r}, format={self.format!r})"


def _shown(kind: str, location: str) -> str:
    return location if kind in ("path", "resource") and "://" not in location else redact(location)


def _near(word: str, known: tuple[str, ...]) -> str:
    near = near_misses(word, known, limit=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
