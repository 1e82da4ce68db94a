"""Skills from MCP servers: the source that lists them, and their files, which are read when they are needed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from flink_skills.errors import ConfigError, ResourceError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import AgentSkill, Diagnostic, LoadResult, Report
from flink_skills.skill.file_rules import is_excluded, resource_parts
from flink_skills.skill.skill_fields import read_fields
from flink_skills.skill.skill_files import Chunk, SkillFiles, excluded_error
from flink_skills.skill.text import clean_line
from flink_skills.sources import AddressPolicy, SkillSource, SourceContext, SourceSpec, SourceTree
from flink_skills.tools.mcp.server_mapping import connection_params
from flink_skills.tools.mcp.skill_client import SkillClient
from flink_skills.tools.mcp.skill_entries import (
    SkillEntry,
    front_matter_problem,
    pack_entries,
    read_entry,
    unpack_entries,
)
from flink_skills.tools.mcp.transports import need_mcp

_FOLDER_NAME = re.compile(r"[a-z0-9-]{1,64}")
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9._-]+")
_AT_ONCE = 4
_CHANGED = "the files have changed since the job approved it"
_NOT_APPROVED = "the job has not approved its commands"
_EMPTY_SHA256 = hashlib.sha256().hexdigest()
_MAX_NAME = 255


class SkillSettings(BaseModel):
    """The settings for a source ``mcp+…``, after the ``#`` in its declaration.

    Attributes:
        label: The server's name in this job, the prefix in its skill names.
        prefetch: Whether all files are fetched when the source is opened.
        dynamic: Whether skills without digests are accepted.
        scripts: Approved skills by name or URI, with ``@sha256:`` and the entry's digest, or that at submit.
        skills: URIs that the server may not list.
        timeout: Maximum seconds for a request.
        server: More arguments for the connection, such as ``headers``.
        entries: The entries at submit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    prefetch: bool = False
    dynamic: bool = False
    scripts: tuple[Annotated[str, Field(pattern=r"^[^@]+(@sha256:[0-9a-f]{64})?$")], ...] = ()
    skills: tuple[str, ...] = ()
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    server: Annotated[dict[str, Any], BeforeValidator(lambda value: json.loads(value or "{}"))] = {}
    entries: str = ""

    @classmethod
    def parse(cls, text: str, label: str, place: str) -> SkillSettings:
        """Read settings. ``label`` is the default. Raises :class:`ConfigError`, whose message starts with ``place``."""
        values: dict[str, Any] = {"label": label}
        for name, value in parse_qsl(text, keep_blank_values=True):
            listed = [part.strip() for part in value.split(",") if part.strip()]
            values[name] = (*values.get(name, ()), *listed) if name in ("scripts", "skills") else value
        try:
            return cls(**values)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[0]
            known = ", ".join(name for name in cls.model_fields if name != "entries")
            where = ".".join(map(str, found["loc"]))
            raise ConfigError(
                f"{place}: {where[:80]} is not valid: {found['msg']}. The settings are {known}."
            ) from None

    def to_text(self) -> str:
        """Return the settings in the form that :meth:`parse` reads."""
        values = self.model_dump(exclude_defaults=True)
        return urlencode({**values, **({"server": json.dumps(self.server)} if self.server else {})}, doseq=True)


class McpSource(SkillSource):
    """A server with the skills extension: ``mcp+https://host/path`` or ``mcp+stdio:COMMAND``, and settings after ``#``.

    A program is a plain process with this one's rights, without its variables. Only the list is read unless
    ``prefetch`` is set. A plan's entries are used until the source is refreshed.
    """

    kind = "mcp"

    def __init__(self, spec: SourceSpec, context: SourceContext) -> None:
        super().__init__(spec, context)
        need_mcp()
        place = f"skill source {self.origin}"
        if spec.sha256 or spec.format != "skill":
            raise ConfigError(f"{place}: a server has no sha256 and no format. Remove them: digests pin its files.")
        scheme, _, rest = spec.location.partition(":")
        if scheme == "mcp+stdio":
            command = _words(rest, place)
            default = os.path.basename(command[0])
        else:
            command = []
            default = rest.removeprefix("//").partition("/")[0].rpartition("@")[2].partition(":")[0]
        self.settings = SkillSettings.parse(
            spec.settings, _NOT_IN_LABEL.sub("-", default).strip("-._")[:64] or "server", place
        )
        self.label = self.settings.label
        self._url = "" if command else f"{scheme.removeprefix('mcp+')}:{rest}"
        try:
            if command:
                params = connection_params({"command": command, "sandbox": False, **self.settings.server})
            else:
                AddressPolicy(context.config).check_url(self._url)
                params = connection_params({"url": self._url, **self.settings.server})
        except (ConfigError, TypeError) as error:
            raise ConfigError(str(error) if place in str(error) else f"{place}: {error}") from None
        self._client = SkillClient(self.settings.label, params, self.settings.timeout, self._check_address)

    def resolve(self) -> list[SourceTree]:
        tree = self._tree()
        if self.settings.prefetch:
            self._prefetch([result.skill for result in tree.results or () if result.skill is not None])
        return [tree]

    def pinned(self) -> SourceSpec:
        """Return the declaration with the entries and the digests of approved skills. Raises :class:`SourceError`."""
        return self._tree().pinned or self.spec

    def _tree(self) -> SourceTree:
        settings, limits, notes = self.settings, self.context.limits, list[Diagnostic]()
        is_pinned = bool(settings.entries) and not self.context.refresh
        try:
            entries = unpack_entries(settings.entries, limits) if is_pinned else self._listed(notes)
        except (SourceError, ValueError) as error:  # a ValueError for entries of the plan
            message, retryable = f"skill source {self.origin}: {error}", getattr(error, "retryable", False)
            raise SourceError(message, source=self.origin, retryable=retryable) from None
        entries.sort(key=lambda entry: entry.uri)
        digests = {entry.uri: entry.digest for entry in entries}
        scripts = self._approvals(entries, digests, notes)
        results = self._skills(entries, digests, scripts)
        approved = tuple(f"{name}@sha256:{digest}" for name, digest in scripts.items())
        packed = settings.entries if is_pinned else pack_entries(entries)
        pinned = settings.model_copy(update={"scripts": approved, "entries": packed})
        version = hashlib.sha256(json.dumps([sorted(digests.items()), scripts], sort_keys=True).encode()).hexdigest()
        folder = self.context.store.served_folder(settings.label)
        tree = SourceTree(folder, self.origin, remote=True, version=version, notes=tuple(notes), results=tuple(results))
        return replace(tree, pinned=replace(self.spec, kind="url", settings=pinned.to_text()))

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        return self._client.watch(changed)

    def _check_address(self, url: str, addresses: list[str]) -> None:
        """Raise :class:`ConfigError` for an address that the options of sources forbid."""
        policy = AddressPolicy(self.context.config)
        policy.check_url(url)
        try:
            policy.check_addresses(addresses, self.origin)
        except SourceError as error:
            raise ConfigError(str(error)) from None

    def _listed(self, notes: list[Diagnostic]) -> list[SkillEntry]:
        """Return the entries that the server lists, and those for ``skills``. ``notes`` receives what is wrong."""
        found: dict[str, SkillEntry] = {}
        most, most_bytes = self.context.limits.tree_directories, self.context.limits.download
        left_out = size = 0
        seen: Counter[str] = Counter()
        for page in self._client.pages(self.context.config.get(SkillOptions.SOURCE_TIMEOUT)):
            skills = page.get("skills")
            if not isinstance(skills, list):
                raise SourceError(f"{self._client.shown}: skills/list failed: 'skills' is missing", source=self.origin)
            if "ttlMs" not in page:
                seen["the protocol is older than 2026-07-28: lists have no ttlMs"] += 1
            for raw in skills:
                size += len(repr(raw))
                if len(found) >= most or size > most_bytes:
                    left_out += 1
                else:
                    self._add(raw, found, notes, seen)
            if left_out:
                break
        for uri in self.settings.skills:
            if uri not in found:
                self._add(self._client.entry(uri).get("skill"), found, notes, seen, uri)
        notes += [Diagnostic("M01", "info", text, path=self.origin) for text in seen]
        if left_out:
            fix = f"raise {SkillOptions.LIMIT_TREE_DIRECTORIES.key} or {SkillOptions.LIMIT_DOWNLOAD.key}"
            text = f"the server lists more than {most:,} skills or {most_bytes:,} bytes: the others are omitted"
            notes.append(Diagnostic("D01", "warning", text, path=self.origin, fix=fix, left_out=left_out))
        return list(found.values())

    def _add(
        self,
        raw: Any,
        found: dict[str, SkillEntry],
        notes: list[Diagnostic],
        seen: Counter[str],
        wanted: str = "",
    ) -> None:
        entry = read_entry(raw, self.context.limits)
        problem = entry if isinstance(entry, str) else ""
        if isinstance(entry, SkillEntry):
            if wanted and entry.uri != wanted:
                problem = f"the server returned {entry.uri} for {wanted}"
            elif entry.uri in found:
                problem = f"{entry.uri} is listed twice"
            elif not entry.files and not self.settings.dynamic:
                problem = f"the content of {entry.uri} is dynamic, so it has no digests. Set dynamic: true to accept it"
            else:
                found[entry.uri] = entry
                if any(file.size is None for file in entry.files.values()):
                    seen["entries without 'size': only the digests are compared"] += 1
                return
        if len(notes) < 100:
            name = raw.get("frontmatter", {}) if isinstance(raw, dict) else {}
            name = name.get("name") if isinstance(name, dict) else ""
            name = clean_line(name)[:64] if isinstance(name, str) else ""
            text, fix = f"a skill of the server is omitted: {problem}", "correct the skill on the server"
            notes.append(Diagnostic("M02", "warning", text, name, self.origin, fix=fix))

    def _approvals(
        self, entries: Sequence[SkillEntry], digests: Mapping[str, str], notes: list[Diagnostic]
    ) -> dict[str, str]:
        """Return the approved skills with their entries' digests. The first listing binds a name."""
        bound = {}
        for name, _, digest in (item.partition("@sha256:") for item in self.settings.scripts):
            uris = [entry.uri for entry in entries if name in (entry.name, entry.uri, f"{self.label}:{entry.name}")]
            if not digest and len(uris) != 1:
                text = f"scripts: {name[:80]!r} names {len(uris)} skills of the server, and an approval is for one"
                fix = "write the URI of the skill"
                notes.append(Diagnostic("M02", "warning", text, path=self.origin, fix=fix))
                continue
            bound[name] = digest or digests[uris[0]]
        return bound

    def _skills(
        self, entries: Sequence[SkillEntry], digests: Mapping[str, str], scripts: Mapping[str, str]
    ) -> list[LoadResult]:
        names = Counter(entry.name for entry in entries)
        approved = {digest: name for name, digest in scripts.items()}
        found = []
        for entry in entries:
            digest = digests[entry.uri]
            called = {entry.name, entry.uri, f"{self.label}:{entry.name}"}
            refusal = ""
            if not entry.files or digest not in approved or approved[digest] not in called:
                refusal = _CHANGED if called & scripts.keys() else _NOT_APPROVED
            # Paths on the server distinguish equal names.
            plugin = f"{self.label}/{entry.place}" if names[entry.name] > 1 and entry.place else self.label
            found.append(self._skill(entry, digest, plugin, refusal))
        return found

    def _skill(self, entry: SkillEntry, digest: str, plugin: str, refusal: str) -> LoadResult:
        limits = self.context.limits
        report = Report(entry.uri, skill=entry.name)
        fields, _ = read_fields(entry.head, report, limits, folder=entry.name, heading=False)
        if fields is None or report.has_errors:
            return LoadResult(None, tuple(report.diagnostics), report.strict_valid)
        name = quote(entry.uri, safe="")
        if len(name) > _MAX_NAME:
            name = hashlib.sha256(entry.uri.encode()).hexdigest()
        base = fields.name if _FOLDER_NAME.fullmatch(fields.name) else "skill"
        folder = os.path.join(self.context.store.served_folder(self.label), name, digest[:32], base)
        skill = AgentSkill.from_folder(
            folder if entry.files else None,
            fields,
            root=folder,
            origin=f"MCP server {self.label}",
            remote=True,
            limits=limits,
            plugin=plugin,
            server=self.label,
            refusal=refusal,
            files=ServedFiles(self._client, entry, folder, self.context, is_fetched=self.settings.prefetch),
        )
        return LoadResult(skill, tuple(report.diagnostics), report.strict_valid)

    def _prefetch(self, skills: Sequence[AgentSkill]) -> None:
        """Fetch all files. Raises :class:`SourceError`."""
        try:
            for skill in skills:
                skill.files.fetch()
        except ResourceError as error:
            message = f"skill source {self.origin}: prefetch failed: {error}"
            raise SourceError(message, source=self.origin, retryable=True) from None


def _words(command: str, place: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{place}: the command cannot be read: {error}. Write mcp+stdio:PROGRAM ARGUMENTS.") from None
    if not words:
        raise ConfigError(f"{place}: the command is missing. Write mcp+stdio:PROGRAM ARGUMENTS.")
    return words


class ServedFiles(SkillFiles):
    """Files of a served skill. A file is fetched once, verified, and stored; each read verifies it again.

    Dynamic content has no digests: only ``SKILL.md`` and files next to it that a text names can be read,
    and nothing is stored.
    """

    def __init__(
        self, client: SkillClient, entry: SkillEntry, folder: str, context: SourceContext, *, is_fetched: bool
    ) -> None:
        self._on_demand = not (is_fetched and entry.files)
        self._client = client
        self._entry = entry
        self._folder = folder
        self._context = context
        # The size is 0 if the server does not state it.
        self._manifest = {
            path: (file.size or 0, file.sha256) for path, file in sorted(entry.files.items()) if not is_excluded(path)
        }

    @property
    def on_demand(self) -> bool:
        return self._on_demand

    def paths(self) -> tuple[str, ...]:
        return tuple(self._manifest) or (self.skill_file,)

    def manifest(self) -> Mapping[str, tuple[int, str]]:
        return self._manifest

    def excluded(self) -> tuple[str, ...]:
        paths = (accumulate(path.split("/"), "{}/{}".format) for path in sorted(self._entry.files) if is_excluded(path))
        return tuple(dict.fromkeys(next(filter(is_excluded, path)) for path in paths))

    def pins(self) -> Mapping[str, Any]:
        approval = f"{self._entry.uri}@sha256:{self._entry.digest}"
        return {"server": self._client.label, "approval": approval, "entry": self._entry.to_json()}

    def digest(self) -> str:
        return super().digest() if self._manifest else self._entry.digest

    def read(self, path: str, offset: int, limit: int) -> Chunk:
        try:
            plain = "/".join(resource_parts(path))
        except ValueError as error:
            raise ResourceError(f"cannot read {path!r}: {error}") from None
        if not self._manifest:
            data = self._fetched(plain, f"{self._entry.uri.removesuffix(self.skill_file)}{quote(plain)}")
        elif plain not in self._manifest:
            raise excluded_error(path, plain) or self.missing(path)
        else:
            data = self._content(plain)
        return Chunk(data[offset : offset + limit], len(data))

    def fetch(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, "flink-skills-files") as pool:
            for job in [pool.submit(self._content, path) for path in self._manifest]:
                job.result()

    def _content(self, path: str) -> bytes:
        """Return a file from the store, or else from the server."""
        if (data := self._stored(path)) is not None:
            return data
        store = self._context.store
        try:
            # Other processes on this machine wait for the first one.
            deadline = time.monotonic() + self._client.timeout
            key = hashlib.sha256(f"{self._folder}\0{path}".encode()).hexdigest()
            with store.locked(key, deadline, self._client.shown):
                if (data := self._stored(path)) is None:
                    data = self._fetched(path, self._entry.files[path].uri)
                    store.add_served(os.path.join(self._folder, path), data, self._client.shown)
        except SourceError as error:
            raise ResourceError(str(error)) from None
        return data

    def _stored(self, path: str) -> bytes | None:
        with suppress(OSError), open(os.path.join(self._folder, path), "rb") as file:
            data = file.read()
            if self._problem(path, data) == "":
                return data
        return None

    def _fetched(self, path: str, uri: str) -> bytes:
        try:
            data = self._client.read(uri)
        except SourceError as error:
            raise ResourceError(str(error)) from None
        problem = self._problem(path, data)
        if not problem and path == self.skill_file:
            problem = front_matter_problem(data, self._entry, self._context.limits)
        if problem:
            raise ResourceError(
                f"{path!r} of {self._client.shown} does not match its entry: {problem}. It is not used: refresh the "
                "skills (skills.refresh.interval), or correct the server."
            )
        return data

    def _problem(self, path: str, data: bytes) -> str:
        """Return how content differs from the entry. Empty: it does not, or the content is dynamic."""
        if path not in self._manifest:
            return ""
        size, sha256 = self._manifest[path]
        if len(data) != size and (size or sha256 == _EMPTY_SHA256):
            return f"the file has {len(data)} bytes instead of {size}"
        found = hashlib.sha256(data).hexdigest()
        return "" if found == sha256 else f"the sha256 is {found} instead of {sha256}"
