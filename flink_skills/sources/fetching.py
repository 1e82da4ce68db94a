"""One remote file on its way into the store, with errors that call it by the name under which it was declared."""

from __future__ import annotations

import codecs
import logging
import os
import secrets
import time
from pathlib import Path

from flink_skills.endpoint import redact
from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.sources.archive import check_pin
from flink_skills.sources.downloads import remote_of
from flink_skills.sources.git import GitAddress, GitRepository, is_git
from flink_skills.sources.secrets import expand, replacements
from flink_skills.sources.skill_source import SourceContext
from flink_skills.sources.store import StoredTree
from flink_skills.sources.upkeep import FetchRecord

_logger = logging.getLogger(__name__)

_LONG_ENOUGH = 6  # shorter values are found in any text
_PAGE_STARTS = (b"<!doctype html", b"<html", b"<head", b"<?xml version")


class Fetch:
    """A file, or a folder as an archive, that may be fetched.

    ``location`` may have references (``${env:…}``), which are replaced now.

    Raises :class:`SourceError`, whatever is wrong: this happens where the job runs.
    """

    def __init__(self, location: str, origin: str, context: SourceContext) -> None:
        self.origin = origin
        self._values = replacements(location)
        try:
            self.url = expand(location)
        except ConfigError as error:
            raise SourceError(f"skill source {origin}: {error}", source=origin) from None
        self._shown = redact(self.url)
        try:
            self._file = _repository(location, origin, context) if is_git(location) else remote_of(self.url, context)
        except ConfigError as error:
            raise SourceError(self._shown_error(error), source=origin) from None

    @property
    def name(self) -> str:
        """The name of the file."""
        return self._file.name

    @property
    def notes(self) -> str | None:
        """Notes on the fetched content, as a record keeps them."""
        return self._file.notes if isinstance(self._file, GitRepository) else None

    def version(self, deadline: float) -> str | None:
        """See :meth:`RemoteFile.version`."""
        try:
            return self._file.version(deadline)
        except SourceError as error:
            raise self._renamed(error) from None

    def fetch(self, folder: str, limit: int, deadline: float, sha256: str | None = None) -> tuple[str, str | None]:
        """Fetch it into ``folder``, and check its digest if one is given; the new file's path, and its version."""
        # A name of its own: a transfer that was given up may still write to the old one.
        target = os.path.join(folder, secrets.token_hex(8))
        try:
            version = self._file.fetch(target, limit, deadline)
        except SourceError as error:
            raise self._renamed(error) from None
        if sha256:
            check_pin(target, sha256, self.origin, sorted(self._file.generated))
        return target, version

    def _renamed(self, error: SourceError) -> SourceError:
        return SourceError(self._shown_error(error), source=self.origin, retryable=error.retryable)

    def _shown_error(self, error: Exception) -> str:
        text = str(error).replace(self._shown, self.origin)
        for value, reference in self._values:
            text = text.replace(value, reference) if len(value) >= _LONG_ENOUGH else text
        return text


def _repository(location: str, origin: str, context: SourceContext) -> GitRepository:
    """Return a repository with its references replaced, but those of the user, whose values can have any character."""
    address = GitAddress.parse(location, origin)
    parts = GitAddress(*map(expand, address))
    return GitRepository(parts._replace(user=address.user), origin, context)


def keep(target: str, name: str, origin: str, context: SourceContext, deadline: float) -> StoredTree:
    """Put a fetched file into the store: an archive, or a SKILL.md by its name."""
    refuse_web_page(target, origin)
    if name.lower() != "skill.md":
        return context.store.add_archive(target, origin, deadline=deadline, name=name)
    size, limit = os.path.getsize(target), context.limits.skill_file
    if size > limit:
        message = f"skill source {origin}: has {size} bytes; the limit for a SKILL.md is {limit}"
        raise SourceError(f"{message} ({SkillOptions.LIMIT_SKILL_FILE.key})", source=origin)
    return context.store.add_file(Path(target).read_bytes(), "SKILL.md", origin, deadline=deadline)


def refuse_web_page(target: str, origin: str) -> None:
    """Raise :class:`SourceError` for HTML, which is what an address made for people gives."""
    with Path(target).open("rb") as file:
        head = file.read(1024)
    text = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if text.startswith(_PAGE_STARTS) and b"\0" not in head and (b"html" in text or b"<head" in text):
        message = f"skill source {origin}: is a web page, not an archive or a SKILL.md"
        raise SourceError(f"{message}; give the address of the file itself (a 'raw' or 'download' link)", source=origin)


def is_answered(record: FetchRecord, context: SourceContext, began: float) -> bool:
    """Whether the server need not be asked again, by ``skills.store.check``.

    ``began`` is when this look at the source began.
    """
    check = context.config.get(SkillOptions.STORE_CHECK)
    if check == "on-open":
        # A clock that was set back must not make a record look new for good.
        return (began if context.refresh else context.opened) <= record.checked <= time.time()
    return check == "never"


def noted(record: FetchRecord, path: str) -> FetchRecord:
    """Write a record; without it the same is asked for once more, which is no reason to fail."""
    try:
        record.write(path)
    except OSError as error:
        _logger.warning("skill store: what was fetched cannot be noted (%s)", error.strerror)
    return record
