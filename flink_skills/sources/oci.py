"""Skills in OCI registries: ``oci://registry/repository:tag@sha256:…``.

A tag is resolved to a digest, which the plan of a job pins. The store keeps the files under a digest of their layers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from flink_skills.endpoint import oci_parts
from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import Diagnostic, Limits, load_folder
from flink_skills.sources.entries import ArchiveRefusedError
from flink_skills.sources.fetching import is_answered, noted
from flink_skills.sources.oci_content import Artifact, Descriptor, UnknownFormError, read_document, unpack_layers
from flink_skills.sources.oci_registry import MANIFEST, Registry, Repository
from flink_skills.sources.packing import Packing, pack_skills
from flink_skills.sources.secrets import expand, unchained_errors
from flink_skills.sources.skill_source import SkillSource, SourceContext, SourceSpec, SourceTree
from flink_skills.sources.store import StoredTree, remove_tree
from flink_skills.sources.upkeep import FetchRecord

SKILL_TYPE = "application/vnd.agentskills.skill.v1"
_CONFIG_TYPE = "application/vnd.agentskills.skill.config.v1+json"
_CONTENT_TYPE = "application/vnd.agentskills.skill.content.v1.tar+gzip"
_EXAMPLE = "oci://registry.example.org/team/skill:1.0"
_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})?")
_AT_ONCE = 16
_MAX_DEPTH = 4  # of indexes in indexes
_MAX_NOTES = 100
_SHOWN = 5


@dataclass(frozen=True)
class OciAddress:
    """The parts of an address. ``digest`` is the declared one, ``pin`` the one that the plan pins for the tag."""

    user: str
    repository: Repository
    tag: str
    digest: str
    pin: str

    @classmethod
    def parse(cls, spec: SourceSpec) -> OciAddress:
        """Read an address. Raises :class:`ConfigError`."""
        parts = oci_parts(spec.location)
        place = f"skill source {spec.shown}"
        if parts is None or not spec.location.isprintable() or " " in spec.location:
            raise ConfigError(f"{place}: is not the address of an artifact; write {_EXAMPLE}, @sha256:… or both")
        name, tag = parts["name"], parts["tag"]
        digest = parts["digest"] or (f"sha256:{spec.sha256}" if spec.sha256 else "")
        for value, pattern, what in (
            (name, _NAME, "repository, which has lowercase letters, digits and single separators"),
            (tag or "latest", _TAG, "tag, which has at most 128 letters, digits, '.', '_' and '-'"),
            (digest, _DIGEST, "digest, which is sha256: and 64 lowercase hexadecimal digits"),
        ):
            if not pattern.fullmatch(value):
                raise ConfigError(f"{place}: {value[:60]!r} is not a valid {what}; write {_EXAMPLE}")
        if spec.sha256 and digest != f"sha256:{spec.sha256}":
            raise ConfigError(f"{place}: #sha256= is another digest than the one after '@'; keep one of them")
        if not tag and not digest:
            tag = "latest"
        return cls(parts["user"], Repository(parts["host"], name), tag, digest, parts["pin"])

    def expanded(self, origin: str) -> OciAddress:
        """Return the address with its references replaced. Raises :class:`SourceError`."""
        try:
            host = expand(self.repository.host)
            return replace(self, user=expand(unquote(self.user)), repository=self.repository._replace(host=host))
        except ConfigError as error:
            raise SourceError(f"skill source {origin}: {error}", source=origin) from None


@dataclass(frozen=True)
class _Member:
    """An artifact, and the folder for it in the tree: "" without a collection."""

    folder: str
    repository: Repository
    artifact: Artifact


class OciSource(SkillSource):
    """An artifact, an image or a collection in an OCI registry.

    Several processes that open the same source at the same time pull it one time. ``skills.store.check`` specifies when
    the registry is queried for the digest of a tag. A digest that is in the store is not requested.
    """

    kind = "oci"

    def __init__(self, spec: SourceSpec, context: SourceContext) -> None:
        super().__init__(spec, context)
        with unchained_errors():
            self._address = OciAddress.parse(spec)
            Registry(self._address.repository, "", self.origin, context)

    def resolve(self) -> list[SourceTree]:
        with unchained_errors():
            began, deadline = time.time(), time.monotonic() + self.context.config.get(SkillOptions.SOURCE_TIMEOUT)
            address = self._address.expanded(self.origin)
            stored, notes = self._stored(address, began, deadline)
            tree = SourceTree.of_store(stored, self.origin, remote=True, format=self.spec.format)
            return [replace(tree, notes=tuple(notes))]

    def pinned(self) -> SourceSpec:
        """Return the declaration with the digest that the tag has now. Raises :class:`SourceError`."""
        spec = SourceSpec("url", self.location, self.spec.sha256, self.spec.format)
        if self._address.digest or self._address.pin:
            return spec
        with unchained_errors():
            deadline = time.monotonic() + self.context.config.get(SkillOptions.SOURCE_TIMEOUT)
            address = self._address.expanded(self.origin)
            registry = self._registry(address)
            digest = registry.run(lambda: registry.resolve(address.repository, address.tag), deadline)
            return replace(spec, location=f"{self.location}?pin={digest}")

    def _registry(self, address: OciAddress) -> Registry:
        try:
            return Registry(address.repository, address.user, self.origin, self.context)
        except ConfigError as error:
            raise SourceError(str(error), source=self.origin) from None

    def _stored(self, address: OciAddress, began: float, deadline: float) -> tuple[StoredTree, list[Diagnostic]]:
        store, registry = self.context.store, self._registry(address)
        place = "/".join(address.repository)
        key = hashlib.sha256(f"oci://{place}:{address.tag}@{address.digest or address.pin}".encode()).hexdigest()
        with store.locked(key, deadline, self.origin):
            path = store.record_path(key)
            record = FetchRecord.read(path)
            digest = self._digest(registry, address, record, began, deadline)
            if record is not None and record.version == digest and (known := self._known(record)):
                if not address.digest:
                    noted(replace(record, checked=time.time()), path)
                return known
            work = store.work_path(key)
            try:
                pull = _Pull(registry, address, self.context, work, deadline)
                tree, is_complete = pull.tree(digest)
                text = json.dumps({"tree": tree.sha256, "notes": [note.to_json() for note in pull.notes]})
                if is_complete:
                    hashed = hashlib.sha256(text.encode()).hexdigest()
                    noted(FetchRecord(hashed, digest, time.time(), text), path)
                return tree, pull.notes
            finally:
                remove_tree(work)

    def _digest(
        self, registry: Registry, address: OciAddress, record: FetchRecord | None, began: float, deadline: float
    ) -> str:
        """Return the digest to use: the declared one, the pinned one except on refresh, or that of the tag."""
        if address.digest or (address.pin and not self.context.refresh):
            return address.digest or address.pin
        if record is not None and record.version and is_answered(record, self.context, began):
            return record.version
        return registry.run(lambda: registry.resolve(address.repository, address.tag), deadline)

    def _known(self, record: FetchRecord) -> tuple[StoredTree, list[Diagnostic]] | None:
        """Return what was pulled before, if the store has it."""
        try:
            found = json.loads(record.text or "")
            notes = [Diagnostic.from_json(note) for note in found["notes"]]
            stored = self.context.store.open_tree(found["tree"], self.origin)
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        return None if stored is None else (stored, notes)


@dataclass
class _Pull:
    """One transfer into the folder ``work``, and from there into the store."""

    registry: Registry
    address: OciAddress
    context: SourceContext
    work: str
    deadline: float
    notes: list[Diagnostic] = field(default_factory=list)
    _is_complete: bool = True
    _left: Limits | None = None
    _manifests: set[str] = field(default_factory=set)

    def tree(self, digest: str) -> tuple[StoredTree, bool]:
        """Return the tree, and whether it has all that the registry names. Raises :class:`SourceError`."""
        members = self.registry.run(lambda: self._pulled(digest), self.deadline, self.work)
        store, origin = self.context.store, self.registry.shown
        made = os.path.join(self.work, "tree")
        os.mkdir(made, 0o755)
        files: dict[str, tuple[int, str]] = {}
        content = []
        try:
            for member in members:
                if found := self._unpacked(member, made):
                    files.update(found)
                    content.append([member.folder, member.artifact])
        except ArchiveRefusedError as refused:
            raise self.registry.error(f"{refused}; the artifact is refused") from None
        if not content:
            reasons = "".join(f"\n- {note.message}" for note in self.notes[:_SHOWN])
            raise self.registry.error(f"the index has no usable member{reasons}")

        def fill(folder: str) -> Mapping[str, tuple[int, str]]:
            for name in os.listdir(made):
                os.rename(os.path.join(made, name), os.path.join(folder, name))
            return files

        key = hashlib.sha256(json.dumps(["oci", 1, content]).encode()).hexdigest()
        self._shorten_notes()
        return store.open_or_make(key, fill, origin, self.deadline), self._is_complete

    async def _pulled(self, digest: str) -> list[_Member]:
        """Return the artifacts, after their layers are in the folder."""
        self.notes.clear()
        self._manifests.clear()
        self._is_complete = True
        if self.address.digest and self.address.tag:
            await self._check_tag()
        turns = asyncio.Semaphore(_AT_ONCE)
        members = await self._members(Descriptor(digest, -1, "", "", None), self.address.repository, 0, turns)
        layers: dict[str, tuple[Repository, int]] = {}
        admitted, total, limit = [], 0, self.context.limits.download
        for member in members:
            total += member.artifact.size
            if total > limit:
                key = SkillOptions.LIMIT_DOWNLOAD.key
                raise self.registry.error(f"the layers exceed the limit of {limit} bytes; reduce them, or raise {key}")
            admitted.append(member)
            layers.update({layer.digest: (member.repository, layer.size) for layer in member.artifact.layers})

        async def pull(layer: str, repository: Repository, size: int) -> None:
            async with turns:
                await self.registry.blob(repository, layer, size, self._path(layer))

        await _all(pull(layer, *where) for layer, where in layers.items())
        return admitted

    async def _check_tag(self) -> None:
        address = self.address
        try:
            now = await self.registry.resolve(address.repository, address.tag)
        except Exception as error:
            now, reason = "", str(self.registry.translated(error)).rpartition(": ")[2]
            self._note(f"the tag {address.tag!r} cannot be resolved ({reason}); the digest is used", "remove the tag")
        if now and now != address.digest:
            fix = "write the digest of the tag, or remove the tag"
            self._note(f"the tag {address.tag!r} is now {now}; the digest {address.digest} is used", fix)

    async def _members(
        self, entry: Descriptor, repository: Repository, depth: int, turns: asyncio.Semaphore
    ) -> list[_Member]:
        """Return the artifacts that a manifest or index names. What cannot be used of an index is a note."""
        try:
            async with turns:
                document, repository = await self._document(entry, repository)
            content = read_document(document)
            if isinstance(content, Artifact):
                return [_Member("", repository, content)]
            if depth >= _MAX_DEPTH:
                raise UnknownFormError(f"there are more than {_MAX_DEPTH} indexes in each other; push a flat one")
        except (UnknownFormError, SourceError) as error:
            if isinstance(error, UnknownFormError):
                error = self.registry.error(str(error))
            else:
                self._is_complete = False
            if error.retryable or not depth:
                raise error from None
            reason = str(error).removeprefix(f"skill source {self.registry.shown}: ")
            self._note(f"a member of the index is omitted: {entry.name or entry.digest}: {reason}", "", "error")
            return []
        new = [one for one in dict.fromkeys(content) if one.digest not in self._manifests]
        room = self.context.limits.tree_directories - len(self._manifests)
        if len(new) > room:
            key, omitted = SkillOptions.LIMIT_TREE_DIRECTORIES.key, len(new) - max(0, room)
            text = f"the index has {len(new)} members: {omitted} are omitted"
            self._note(text, f"raise {key}", code="D01", left_out=omitted)
            new = new[: max(0, room)]
        self._manifests.update(one.digest for one in new)
        found = await _all(self._members(one, repository, depth + 1, turns) for one in new)
        if len(content) == 1 and content[0].platform is not None:
            return found[0] if found else []
        return [
            replace(member, folder="/".join(filter(None, (one.digest.partition(":")[2][:16], member.folder))))
            for one, members in zip(new, found, strict=True)
            for member in members
        ]

    async def _document(self, entry: Descriptor, repository: Repository) -> tuple[Any, Repository]:
        """Return a manifest, from the repository of its index or from the one that its annotation names."""
        size = None if entry.size < 0 else entry.size
        try:
            return await self.registry.document(repository, entry.digest, size), repository
        except Exception as error:
            failure = self.registry.translated(error)
            parts = oci_parts(f"oci://{entry.reference}") if entry.reference else None
            if getattr(error, "status", 0) != 404 or parts is None or parts["user"]:
                raise failure from None
        other = Repository(parts["host"].lower(), parts["name"])
        if not _NAME.fullmatch(other.name):
            raise self.registry.error(f"the address {entry.reference[:100]!r} of a member is invalid")
        try:
            return await self.registry.document(other, entry.digest, size), other
        except Exception as error:
            raise self.registry.translated(error) from None

    def _unpacked(self, member: _Member, made: str) -> dict[str, tuple[int, str]]:
        """Unpack a member. A refused member of a collection is a note."""
        limits, place = self._left or self.context.limits, os.path.join(made, member.folder)
        os.makedirs(place, exist_ok=not member.folder)
        paths = {layer.digest: self._path(layer.digest) for layer in member.artifact.layers}
        try:
            found, links = unpack_layers(member.artifact, paths, place, limits)
        except ArchiveRefusedError as refused:
            if not member.folder:
                raise
            remove_tree(place)
            self._note(f"a member of the index is refused: {refused}", "", "error")
            return {}
        # All members together have the limits of one archive.
        size = sum(size for size, _ in found.values())
        self._left = replace(limits, total=limits.total - size, entries=limits.entries - len(found))
        if links:
            self._note(f"{links} links and devices of the image are omitted", "push an image FROM scratch", "info")
        if not member.folder:
            return dict(found)
        return {f"{member.folder}/{path}": entry for path, entry in self.context.store.wrapped(place, found).items()}

    def _path(self, digest: str) -> str:
        return os.path.join(self.work, digest.replace(":", "-"))

    def _note(self, text: str, fix: str, severity: Any = "warning", *, code: str = "D06", left_out: int = 0) -> None:
        fix = fix or "push the collection again"
        self.notes.append(Diagnostic(code, severity, text, path=self.registry.shown, fix=fix, left_out=left_out))

    def _shorten_notes(self) -> None:
        """Keep the first notes on members, and the number of others."""
        more = len(self.notes) - _MAX_NOTES
        if more > 0:
            del self.notes[_MAX_NOTES:]
            self._note(f"{more} more problems of the index are not listed", "", "error")


async def _all(works: Any) -> list[Any]:
    """Return the results of coroutines. The first error cancels the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def push_skill(
    folder: SourceSpec, location: str, context: SourceContext, *, strict: bool = False, allow_secrets: bool = False
) -> tuple[Packing, str]:
    """Write a skill to a registry, as an artifact with one layer. Return what was packed, and its address.

    The same skill always has the same digest, which is in the address. The address is "" if the packing has errors.

    Raises :class:`ConfigError` for an address that cannot work, and :class:`SourceError` if the registry refuses it.
    """
    spec = SourceSpec.parse("url", location)
    with unchained_errors():
        declared = OciAddress.parse(spec)
        address = declared.expanded(spec.shown)
        registry = Registry(address.repository, address.user, spec.shown, context, actions="pull,push")
        with tempfile.TemporaryDirectory(prefix="flink-skills-push-") as scratch:
            archive = os.path.join(scratch, "skill.tar.gz")
            packing = pack_skills([folder], archive, limits=context.limits, strict=strict, allow_secrets=allow_secrets)
            if not packing.sha256:
                return packing, ""
            if len(packing.skills) != 1 or packing.skills[0].path != packing.skills[0].name:
                found = ", ".join(skill.path for skill in packing.skills[:_SHOWN])
                fix = "give the folder of one skill, with the name of the skill"
                raise ConfigError(f"{folder.location}: an artifact has one skill below its name, not {found}; {fix}")
            with open(archive, "rb") as file:
                content = file.read()
        config, manifest = _documents(packing.skills[0].folder, content)
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        if address.digest not in ("", digest):
            raise ConfigError(f"{spec.shown}: the skill has the digest {digest}; push it to a tag, or to this digest")
        reference = address.tag or digest

        async def push() -> None:
            for blob in (config, content):
                await registry.upload(address.repository, blob)
            await registry.publish(address.repository, reference, manifest)

        registry.run(push, time.monotonic() + context.config.get(SkillOptions.SOURCE_TIMEOUT))
    return packing, f"{spec.shown.partition('@')[0]}@{digest}"


def _documents(folder: str, content: bytes) -> tuple[bytes, bytes]:
    """Return the config and the manifest of a skill, without a time."""
    skill = load_folder(folder).skill
    if skill is None:
        raise ConfigError(f"{folder}: the skill changed while it was packed; push it again")
    fields = {
        "schemaVersion": "1",
        "name": skill.name,
        "version": skill.metadata.get("version"),
        "description": skill.description,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowedTools": list(skill.allowed_tools) if skill.allowed_tools else None,
        "metadata": dict(skill.metadata) or None,
    }
    config = _json({name: value for name, value in fields.items() if value})
    named = {"io.agentskills.skill.name": skill.name, "org.opencontainers.image.title": skill.name}
    version = {"org.opencontainers.image.version": fields["version"]} if fields["version"] else {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": SKILL_TYPE,
        "config": _descriptor(_CONFIG_TYPE, config),
        "layers": [_descriptor(_CONTENT_TYPE, content)],
        "annotations": {**named, **version},
    }
    return config, _json(manifest)


def _descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
