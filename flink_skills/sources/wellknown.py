"""Indexes of skills at ``/.well-known/agent-skills/index.json``, schema 0.2.0.

    {"$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json",
     "skills": [{"name": "pdf", "type": "archive", "description": "…", "url": "pdf.zip", "digest": "sha256:…"}]}

Every artifact is known by the digest of its bytes, so the store is looked at first and nothing is fetched twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin

from flink_skills.endpoint import redact
from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import Diagnostic
from flink_skills.skill.diagnostic import Severity
from flink_skills.sources.address import AddressPolicy, host_of, protocol_of
from flink_skills.sources.fetching import Fetch, is_answered, keep, noted, refuse_web_page
from flink_skills.sources.skill_source import SourceContext, SourceSpec, SourceTree
from flink_skills.sources.store import StoredTree, remove_tree
from flink_skills.sources.upkeep import FetchRecord

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
INDEX_PATH = ".well-known/agent-skills/index.json"

_MAX_BYTES = 8 << 20  # about 25,000 entries
_TYPES = ("skill-md", "archive")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_AT_ONCE = 4
_SHOWN = 5


def index_address(url: str) -> str | None:
    """Return the index address for a web URL: the URL, or one below a URL without a file. Otherwise return None.

    >>> index_address("https://example.org/team/")
    'https://example.org/team/.well-known/agent-skills/index.json'
    """
    head, mark, query = url.partition("?")
    rest = head.partition("://")[2]
    if head.endswith("/" + INDEX_PATH):
        return url
    if "/" not in rest:
        return f"{head}/{INDEX_PATH}{mark}{query}"
    return f"{head}{INDEX_PATH}{mark}{query}" if head.endswith("/") else None


@dataclass(frozen=True)
class Artifact:
    """One entry of an index; ``url`` as it stands there."""

    name: str
    type: str
    url: str
    sha256: str


def read_index(text: str, shown: str, most: int) -> tuple[list[Artifact], list[Diagnostic]]:
    """The entries of an index that can be used, and why others cannot; at most ``most``.

    Raises :class:`SourceError` for what is no index of this schema.
    """
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        raise _no_index(shown, "the file is not valid JSON") from None
    if not isinstance(found, dict):
        raise _no_index(shown, "the content is not a JSON object")
    schema = found.get("$schema")
    if schema != SCHEMA:
        problem = "$schema is missing" if schema is None else f"the schema is {str(schema)[:120]!r}"
        raise _no_index(shown, f"{problem}, and only {SCHEMA} is supported")
    entries = found.get("skills")
    if not isinstance(entries, list):
        raise _no_index(shown, "the list 'skills' is missing")
    artifacts: list[Artifact] = []
    notes: list[Diagnostic] = []
    for number, entry in enumerate(entries[:most], 1):
        read = _artifact(entry)
        if isinstance(read, Artifact):
            artifacts.append(read)
        else:
            name = entry.get("name") if isinstance(entry, dict) else None
            name = name[:64] if isinstance(name, str) and name.isprintable() else ""
            notes.append(_note(name, shown, f"entry {number} of the skill index is skipped: {read}"))
    if len(entries) > most:
        key = SkillOptions.LIMIT_TREE_DIRECTORIES.key
        left_out = len(entries) - most
        text = f"the skill index has {len(entries)} entries, of which {most} are read: {left_out} are omitted"
        notes.append(Diagnostic("D01", "warning", text, path=shown, fix=f"raise {key}", left_out=left_out))
    return artifacts, notes


def _artifact(entry: Any) -> Artifact | str:
    """The entry, or what is wrong with it."""
    if not isinstance(entry, dict):
        return "the entry is not an object"
    texts = [entry.get(field) for field in ("name", "type", "url", "digest")]
    name, kind, url, digest = (text if isinstance(text, str) else "" for text in texts)
    if not name or len(name) > 64 or not name.isprintable():
        return "the entry has no name of 1 to 64 characters"
    if kind not in _TYPES:
        return f"the type {kind[:40]!r} is unknown; {' and '.join(_TYPES)} are supported"
    if not url or not url.isprintable():
        return "the entry has no url"
    match = _DIGEST.fullmatch(digest)
    if match is None:
        return "the digest is not 'sha256:' and 64 lowercase hexadecimal digits"
    return Artifact(name, kind, url, match.group(1))


class SkillIndex:
    """The index at ``address``, for the source ``spec``, which may name it by the place above it."""

    def __init__(self, address: str, spec: SourceSpec, context: SourceContext) -> None:
        self._address = address
        self._spec = spec
        self._context = context
        self._origin = spec.shown
        self._policy = AddressPolicy(context.config)

    def resolve(self, began: float, deadline: float) -> list[SourceTree]:
        """A tree for each skill of the index that can be had; the first one has the notes on the others.

        Raises :class:`SourceError` where there is none, or where trying again may help.
        """
        store = self._context.store
        fetch = Fetch(self._address, redact(self._address), self._context)
        key = hashlib.sha256(fetch.url.encode()).hexdigest()
        try:
            with store.locked(key, deadline, self._origin):
                text = self._text(fetch, key, began, deadline)
                most = self._context.limits.tree_directories
                artifacts, notes = read_index(text, redact(self._address), most)
                return self._trees(fetch, artifacts, notes, key, deadline)
        except SourceError as error:
            raise SourceError(str(error), source=self._origin, retryable=error.retryable) from None

    def _text(self, fetch: Fetch, key: str, began: float, deadline: float) -> str:
        """The index, from what was noted of it or from its server."""
        store, pin = self._context.store, self._spec.sha256
        path = store.record_path(key)
        record = FetchRecord.read(path)
        if record is not None and record.text is not None and _sha256(record.text) == record.sha256:
            if record.sha256 == pin or (not pin and is_answered(record, self._context, began)):
                return record.text
            version = None if pin else fetch.version(deadline)
            if version is not None and version == record.version:
                noted(replace(record, checked=time.time()), path)
                return record.text
        work = store.work_path(key)
        try:
            limit = min(_MAX_BYTES, self._context.limits.download)
            try:
                target, version = fetch.fetch(work, limit, deadline, pin)
            except SourceError as error:
                raise self._with_hint(error) from None
            refuse_web_page(target, fetch.origin)
            with open(target, "rb") as file:
                data = file.read()
        finally:
            remove_tree(work)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise _no_index(fetch.origin, "the file is not UTF-8 text") from None
        read_index(text, fetch.origin, 0)  # only an index is noted as one
        noted(FetchRecord(hashlib.sha256(data).hexdigest(), version, time.time(), text), path)
        return text

    def _trees(
        self, fetch: Fetch, artifacts: list[Artifact], notes: list[Diagnostic], key: str, deadline: float
    ) -> list[SourceTree]:
        store = self._context.store
        work: str | None = None
        kept: dict[str, StoredTree | None] = {
            one.sha256: store.open_tree(one.sha256, self._origin) for one in artifacts
        }
        missing: dict[str, Artifact] = {}
        for one in artifacts:
            if kept[one.sha256] is None:
                missing.setdefault(one.sha256, one)  # of several entries with one content, the first says where it is
        if missing:
            work = store.work_path(key)
            with ThreadPoolExecutor(_AT_ONCE, "flink-skills-index") as pool:
                jobs = [(one, pool.submit(self._fetched, fetch, one, work, deadline)) for one in missing.values()]
                try:
                    for one, job in jobs:
                        made = job.result()
                        if isinstance(made, Diagnostic):
                            notes.append(made)
                        else:
                            kept[one.sha256] = made
                finally:
                    pool.shutdown(cancel_futures=True)
                    remove_tree(work)
        trees = [
            SourceTree.of_store(stored, self._origin, remote=True, format=self._spec.format)
            for stored in kept.values()
            if stored is not None
        ]
        if not trees:
            reasons = "".join(f"\n- {note.skill or 'an entry'}: {note.message}" for note in notes[:_SHOWN])
            message = f"skill source {self._origin}: the skill index lists no usable skill{reasons}"
            raise SourceError(message, source=self._origin)
        return [replace(trees[0], notes=tuple(notes)), *trees[1:]]

    def _fetched(self, fetch: Fetch, artifact: Artifact, work: str, deadline: float) -> StoredTree | Diagnostic:
        """Return the artifact in the store, or the reason why it is unavailable. Raises errors that a retry can fix."""
        shown = redact(self._address)
        try:
            url = urljoin(fetch.url, artifact.url)
            # The address for messages is made without the secrets that are in the one for the request.
            shown = redact(urljoin(self._address, artifact.url))
            if protocol_of(url) not in ("http", "https"):
                raise ConfigError(f"the url {shown} is not an http(s) address")
            home = host_of(fetch.url)
            self._policy.check_step(home, url)
            # What skills.source.options has for the index, a token for instance, is not for other hosts.
            context = self._context if host_of(url) == home else self._context.without_options()
            file = Fetch(url, shown, context)
            target, _ = file.fetch(work, context.limits.download, deadline, artifact.sha256)
            name = "SKILL.md" if artifact.type == "skill-md" else file.name
            return keep(target, name, shown, context, deadline)
        except (ConfigError, ValueError) as error:
            reason = str(error) if isinstance(error, ConfigError) else "the url cannot be parsed"
            return _note(artifact.name, redact(self._address), reason)
        except SourceError as error:
            if error.retryable:
                raise
            return _note(artifact.name, shown, str(error), "error")

    def _with_hint(self, error: SourceError) -> SourceError:
        if self._address == self._spec.location:
            return error
        text = f"{error} (it is where the skills of {self._origin} would be listed; for an archive give its own URL)"
        return SourceError(text, source=self._origin, retryable=error.retryable)


def _note(name: str, path: str, reason: str, severity: Severity = "warning") -> Diagnostic:
    return Diagnostic("D06", severity, reason.removeprefix("skill source "), name, path, fix="fix the skill index")


def _no_index(shown: str, reason: str) -> SourceError:
    return SourceError(f"skill source {shown}: not a valid skill index: {reason}", source=shown)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
