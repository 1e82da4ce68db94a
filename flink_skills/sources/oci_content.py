"""Content of OCI artifacts, images and indexes with skills: the forms that publishers use, and their layers.

application/vnd.agentskills.skill.*, application/vnd.agent.skill.*, application/vnd.cncf.skill.*
    an artifact with one layer (a tar below NAME/), or with one raw layer for each file
application/vnd.oci.image.config.v1+json
    an image; the layers are applied in order, with their whiteouts
an index
    the platforms of one image, or a collection whose members are skills
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flink_skills.skill import Limits
from flink_skills.skill.file_rules import skill_file_in
from flink_skills.sources.archive import archive_kind, damage_refused, open_compressed
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, Readable, checked_parts, shown
from flink_skills.sources.oci_registry import INDEXES, MANIFESTS, Document
from flink_skills.sources.tar_archive import unpack_tar

_FAMILIES = ("application/vnd.agentskills.", "application/vnd.agent.skill.", "application/vnd.cncf.skill.")
_IMAGES = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_TAR = re.compile(r"[./](?:x-)?tar(?:[+.](?:gzip|zstd))?\Z")
_COLLECTION = re.compile(r"\bcollection\b")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_TITLE = "org.opencontainers.image.title"
_UNPACK = "io.deis.oras.content.unpack"
_REFERENCES = ("io.agentskills.skill.ref", "org.opencontainers.image.ref.name")
_NAME = "io.agentskills.skill.name"
_WHITEOUT, _OPAQUE, _RESERVED = ".wh.", ".wh..wh..opq", ".wh..wh."
_MAX_LAYERS = 127  # as container runtimes
_CHUNK = 1 << 18
_FORMS = "push a skill with 'flink-skills push', or an image with skills in its layers"


class UnknownFormError(Exception):
    """Error for content of an unknown form. The message has its types and the fix."""


class Layer(NamedTuple):
    """A blob with content. ``title`` is the path of a raw file, and "" for a tar."""

    digest: str
    size: int
    title: str


class Descriptor(NamedTuple):
    """A manifest in an index. ``reference`` is another address of it, ``platform`` its system, if it has one."""

    digest: str
    size: int
    name: str
    reference: str
    platform: tuple[str, str, str] | None


class Artifact(NamedTuple):
    """The layers of a skill. ``is_image``: they are applied one above the other."""

    layers: tuple[Layer, ...]
    is_image: bool

    @property
    def size(self) -> int:
        """The bytes of all layers, as they are transferred."""
        return sum(layer.size for layer in self.layers)


def read_document(document: Document) -> Artifact | list[Descriptor]:
    """Return the layers of an artifact or image, or the manifests of an index that are for this platform.

    Raises :class:`UnknownFormError`.
    """
    try:
        found = json.loads(document.data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("schemaVersion") != 2:
        raise UnknownFormError(f"the manifest is not a JSON object of schema version 2; {_FORMS}")
    has_layers, has_manifests = isinstance(found.get("layers"), list), isinstance(found.get("manifests"), list)
    types, sent = (INDEXES if has_manifests else MANIFESTS), document.media_type
    kind = found.get("mediaType") or (sent if sent in (*INDEXES, *MANIFESTS) else types[0])
    if kind not in types or has_layers == has_manifests:
        raise UnknownFormError(f"the manifest of the type {str(kind)[:100]!r} has not the fields of its type; {_FORMS}")
    if kind != sent and sent in (*INDEXES, *MANIFESTS):
        raise UnknownFormError(f"the manifest of the type {kind!r} is sent as {sent!r}; push it again")
    return _index(found) if has_manifests else _artifact(found)


def _artifact(found: Mapping[str, Any]) -> Artifact:
    config = found.get("config")
    config_type = str(config.get("mediaType")) if isinstance(config, Mapping) else ""
    kind = str(found.get("artifactType") or config_type)
    raw = [(_mapping(layer), *_parsed(layer)) for layer in found["layers"]]
    types = [str(layer.get("mediaType")) for layer, _, _ in raw]
    is_skill = any(one.startswith(_FAMILIES) for one in (kind, config_type, *types))
    titles = [_annotations(layer).get(_TITLE, "") for layer, _, _ in raw]
    if not is_skill and kind not in _IMAGES:
        raise _unknown(kind, types)
    if not raw or len(raw) > (_MAX_LAYERS if kind in _IMAGES else Limits().entries):
        raise UnknownFormError(f"the artifact has {len(raw)} layers; {_FORMS}")
    is_file_form = is_skill and any(skill_file_in([title.rpartition("/")[2]]) for title in titles)
    layers = []
    for (layer, digest, size), media_type, title in zip(raw, types, titles, strict=True):
        is_file = is_file_form and title and _annotations(layer).get(_UNPACK) != "true"
        if not is_file and not _TAR.search(media_type):
            raise _unknown(kind, types)
        layers.append(Layer(digest, size, title if is_file else ""))
    return Artifact(
        tuple(layers), is_image=not is_file_form and config_type in _IMAGES and not kind.startswith(_FAMILIES)
    )


def _unknown(kind: str, types: Sequence[str]) -> UnknownFormError:
    names = ", ".join(dict.fromkeys(one[:100] for one in types[:5]))
    return UnknownFormError(
        f"an artifact of the type {kind[:100]!r} with layers of {names or 'no type'} is unknown; {_FORMS}"
    )


def _index(found: Mapping[str, Any]) -> list[Descriptor]:
    members = []
    for entry in found["manifests"]:
        data, (digest, size) = _mapping(entry), _parsed(entry)
        notes, system = _annotations(data), data.get("platform")
        values = [str(_mapping(system).get(key) or "") for key in ("os", "architecture", "variant")] if system else []
        if values[:2] != ["unknown", "unknown"]:  # attestations
            reference = next((notes[key] for key in _REFERENCES if "/" in notes.get(key, "")), "")
            system = (values[0], values[1], values[2]) if values else None
            members.append(Descriptor(digest, size, notes.get(_NAME, ""), reference, system))
    systems = [member.platform for member in members]
    is_collection = _COLLECTION.search(str(found.get("artifactType"))) or None in systems
    if not members or is_collection or len(set(systems)) < len(systems):
        return members
    ranks = {rank: member for member in members if (rank := _rank(member.platform)) is not None}
    if not ranks:
        names = ", ".join("/".join(filter(None, system or ())) for system in systems[:5])
        raise UnknownFormError(f"the image is for {names[:200]} only; push it for this platform, or as an artifact")
    return [ranks[min(ranks)]]


def _rank(system: tuple[str, str, str] | None) -> int | None:
    """Return the place of a platform among those that this host can use. Return None if it cannot."""
    machine = platform.machine().lower()
    usable = [("amd64", ""), ("amd64", "v1"), ("386", "")]
    if machine in ("aarch64", "arm64"):
        usable = [("arm64", "v8"), ("arm64", ""), *(("arm", f"v{version}") for version in (8, 7, 6, 5))]
    elif machine not in ("x86_64", "amd64"):
        usable = [(machine, "")]
    if system is None or system[0] != "linux" or system[1:] not in usable:
        return None
    return usable.index(system[1:])


def _parsed(entry: Any) -> tuple[str, int]:
    """Return digest and size of a descriptor."""
    data = _mapping(entry)
    digest, size = data.get("digest"), data.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise UnknownFormError("a digest in the manifest is not 'sha256:' and 64 hexadecimal digits; push it again")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise UnknownFormError(f"the size of {digest} in the manifest is not a number; push it again")
    return digest, size


def _mapping(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise UnknownFormError("an entry of the manifest is not an object; push it again")
    return entry


def _annotations(data: Mapping[str, Any]) -> dict[str, str]:
    notes = data.get("annotations")
    return {key: value for key, value in notes.items() if isinstance(value, str)} if isinstance(notes, dict) else {}


class _Layers(Extraction):
    """Extraction of the layers of an image from the last one to the first, so that each file is written once."""

    def __init__(self, target: str, archive_size: int, limits: Limits) -> None:
        super().__init__(target, archive_size, limits)
        self.links: list[tuple[str, ...]] = []
        self._removed: set[tuple[str, ...]] = set()
        self._opaque: set[tuple[str, ...]] = set()
        self._leaves: set[tuple[str, ...]] = set()
        self._branches: set[tuple[str, ...]] = set()
        self._of_layer: tuple[set[tuple[str, ...]], ...] = (set(), set(), set(), set())

    def next_layer(self) -> None:
        """Apply the whiteouts and files of the layer to the layers below it."""
        for known, new in zip((self._removed, self._opaque, self._leaves, self._branches), self._of_layer, strict=True):
            known.update(new)
            new.clear()

    def is_left_out(self, parts: tuple[str, ...], *, is_folder: bool) -> bool:
        removed, opaque, leaves, branches = self._of_layer
        if parts[-1] == _OPAQUE:
            opaque.add(parts[:-1])
        elif parts[-1] == _WHITEOUT:
            raise ArchiveRefusedError(f"{shown('/'.join(parts))} is a whiteout without a name")
        elif parts[-1].startswith(_WHITEOUT):
            if not parts[-1].startswith(_RESERVED):
                removed.add((*parts[:-1], parts[-1].removeprefix(_WHITEOUT)))
        elif not self._is_hidden(parts, is_folder=is_folder):
            (branches if is_folder else leaves).add(parts)
            branches.update(parts[:depth] for depth in range(1, len(parts)))
            return super().is_left_out(parts, is_folder=is_folder)
        return True

    def _is_hidden(self, parts: tuple[str, ...], *, is_folder: bool) -> bool:
        places = [parts[:depth] for depth in range(len(parts) + 1)]
        return (
            parts in self._branches
            or not self._removed.isdisjoint(places)
            or not self._leaves.isdisjoint(places)
            or not self._opaque.isdisjoint(places[:-1])
        )

    def special(self, name: str) -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise ArchiveRefusedError(f"there are more than {self._limits.entries} entries")
        parts = checked_parts(name)
        if parts and not self.is_left_out(parts, is_folder=False):
            self.links.append(parts)

    def check_links(self) -> None:
        """Raise :class:`ArchiveRefusedError` for a link in a skill. Others belong to the system of the image."""
        files = [tuple(name.split("/")) for name in self.files]
        skills = {parts[:-1] for parts in files if skill_file_in(parts[-1:])}
        for link in self.links:
            if not skills.isdisjoint(link[:depth] for depth in range(len(link))):
                super().special("/".join(link))


class _Bounded:
    """Reader of the layers of one artifact, which have one limit together."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self.source: Readable

    def read(self, size: int = -1, /) -> bytes:
        data = self.source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveRefusedError("the layers are larger than the limit of their content")
        return data


def unpack_layers(
    artifact: Artifact, paths: Mapping[str, str], target: str, limits: Limits
) -> tuple[Mapping[str, tuple[int, str]], int]:
    """Write the files of an artifact below ``target``. ``paths`` are the files of its layers by digest.

    Returns size and sha256 of each file, and the number of links of an image that are omitted.

    Raises :class:`ArchiveRefusedError`, and :class:`OSError` if the disk fails.
    """
    extraction = (_Layers if artifact.is_image else Extraction)(target, artifact.size, limits)
    bounded = _Bounded(limits.total + limits.entries * 4096)
    for layer in reversed(artifact.layers) if artifact.is_image else artifact.layers:
        with open(paths[layer.digest], "rb") as file, damage_refused():
            if layer.title:
                parts = extraction.entry(layer.title, is_folder=False, size=layer.size)
                if parts is not None:
                    extraction.write_file(parts, file.read, layer.size, executable=False)
                continue
            kind = archive_kind("", file.read(512))
            file.seek(0)
            if kind not in ("tar", "tar.gz", "tar.zst"):
                raise ArchiveRefusedError(f"the layer {layer.digest} is not a tar, or a tar with gzip or zstd")
            bounded.source = file if kind == "tar" else open_compressed(file, kind)
            unpack_tar(bounded, extraction, limits)
        if isinstance(extraction, _Layers):
            extraction.next_layer()
    if not isinstance(extraction, _Layers):
        return extraction.files, 0
    extraction.check_links()
    return extraction.files, len(extraction.links)
