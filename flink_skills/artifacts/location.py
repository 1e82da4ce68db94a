"""A folder in which artifacts are kept: whole small files, written at once or not at all, read and listed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from urllib.parse import unquote, urlsplit

from flink_skills.endpoint import links_of, redact
from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.address import protocol_of

__all__ = ["Location", "open_location"]

_LOCAL = ("", "file", "local")
_READ_ONLY = ("http", "https", "zip", "tar", "data", "git", "github", "gist", "ftp")


class Location(ABC):
    """A folder. Names are relative paths with ``/``. Methods block and may be called from several threads.

    They raise ``FileNotFoundError`` for what is not there, and :class:`~flink_skills.artifacts.ArtifactError` for a
    store that cannot be used. ``shown`` is what messages call it, without anything secret.
    """

    shown: str

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Make ``name`` a file with this content, in place of what was there; readers see all of it or nothing."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes:
        """The content of a file of at least one byte, or its first ``limit`` bytes."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; none if there is no such folder."""


def open_location(url: str, config: SkillConfig) -> Location:
    """The folder ``url``: an absolute path, or a URL for fsspec. Nothing is read or made yet.

    Raises :class:`ConfigError`, also for ``skills.source.options`` that cannot be used.
    """
    place = f"option {SkillOptions.ARTIFACTS_DIR.key}: {redact(url)!r}"
    protocol = protocol_of(url)
    if len(links_of(url)) > 1 or protocol in _READ_ONLY:
        raise ConfigError(f"{place} cannot be written to: use s3://…, gs://…, hdfs://… or file:///…")
    if protocol not in _LOCAL:
        from flink_skills.artifacts.remote import RemoteFolder

        return RemoteFolder(url, protocol, config, place)
    host, path = _local(url) if protocol else ("", url)
    if host not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{place} is no absolute path: write file:///path or /path")
    from flink_skills.artifacts.local import LocalFolder

    return LocalFolder(path)


def _local(url: str) -> tuple[str, str]:
    """Return the host and the path of a file: URL. The host is "?" if it cannot be read."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket that opens no IPv6 address
        return "?", ""
    return parts.netloc, unquote(parts.path)
