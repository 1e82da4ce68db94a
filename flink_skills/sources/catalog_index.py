"""What the store remembers of a tree, so that opening it again reads one file and not every skill.

An index is one file: a line that says for what it was made, a line with the catalog (each skill's record, its
digest and where its file list stands), then the file lists of the skills, read one at a time and only when a
skill's files are asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from flink_skills.errors import ResourceError
from flink_skills.skill import AgentSkill, Diagnostic, Found, Limits, LoadResult, Report, find_skills, load_found
from flink_skills.skill.file_rules import walk_files
from flink_skills.skill.skill_fields import EMPTY, Fields
from flink_skills.skill.skill_files import FolderFiles, digest_of

# Goes up when what an index says of the same tree changes: its layout, a rule of the format, a diagnostic.
_VERSION = 5
_BLOCK = 4096
# The limits on which a catalog depends; those of downloads and archives are kept to before there is a tree.
_LIMITS = ("skill_file", "front_matter", "yaml_depth", "tree_depth", "tree_directories", "skill_files")

_Hashes = Mapping[str, tuple[int, str]]


class IndexedTree(Protocol):
    """A tree of the store: its folder, and its index where it has one."""

    @property
    def path(self) -> str: ...

    @property
    def index(self) -> str | None: ...


def to_record(result: LoadResult, root: str) -> dict[str, Any]:
    """Return the result of lenient loading as JSON data with paths relative to ``root``. Defaults are omitted.

    >>> to_record(LoadResult(None, (), strict_valid=False), "/skills")
    {}
    """
    record: dict[str, Any] = {"valid": True} if result.strict_valid else {}
    if result.diagnostics:
        record["notes"] = [
            [each.code, each.severity, each.message, each.skill, _below(each.path, root), each.line, each.fix]
            for each in result.diagnostics
        ]
    skill = result.skill
    if skill is None:
        return record
    record |= {"folder": _below(skill.path or root, root), "name": skill.name, "description": skill.description}
    more = {name: getattr(skill, name) for name in ("license", "compatibility")}
    more |= {"metadata": dict(skill.metadata), "extra": dict(skill.extra)}
    record |= {name: value for name, value in more.items() if value}
    if skill.allowed_tools is not None:
        record["tools"] = list(skill.allowed_tools)
    if skill.files.skill_file != "SKILL.md":
        record["file"] = skill.files.skill_file
    if skill.form != "skill":
        record["form"] = skill.form
    if skill.plugin:
        record["plugin"] = skill.plugin
    return record


def from_record(
    record: Mapping[str, Any],
    *,
    root: str,
    real_root: str,
    origin: str,
    remote: bool,
    limits: Limits,
    known: Callable[[], _Hashes] | None = None,
    digest: str | None = None,
) -> LoadResult:
    """Return the result that :func:`to_record` wrote, for a tree that is now in ``root``, whose real path is
    ``real_root``.

    ``known`` returns the manifest of the skill's files. Raises :class:`KeyError`, :class:`TypeError` or
    :class:`ValueError` for other data.
    """
    notes = tuple(
        Diagnostic(code, severity, message, skill, _above(path, root), line, fix)
        for code, severity, message, skill, path, line, fix in record.get("notes", ())
    )
    valid = record.get("valid", False)
    if "name" not in record:
        return LoadResult(None, notes, valid)
    metadata, extra, tools = record.get("metadata"), record.get("extra"), record.get("tools")
    fields = Fields(
        record["name"],
        record["description"],
        record.get("license"),
        record.get("compatibility"),
        MappingProxyType(metadata) if metadata else EMPTY,
        None if tools is None else tuple(tools),
        MappingProxyType(extra) if extra else EMPTY,
    )
    folder, skill_file = _above(record["folder"], root), record.get("file", "SKILL.md")
    skill = AgentSkill.from_folder(
        folder,
        fields,
        root=real_root,
        origin=origin,
        remote=remote,
        limits=limits,
        form=record.get("form", "skill"),
        plugin=record.get("plugin", ""),
        files=FolderFiles(folder, real_root, skill_file, limits, known),
        digest=digest,
    )
    return LoadResult(skill, notes, valid)


def index_name(limits: Limits) -> str:
    """The file name of an index for these limits and this version; others may stand beside it.

    >>> index_name(Limits()) == index_name(Limits(download=1)) != index_name(Limits(yaml_depth=1))
    True
    """
    return hashlib.sha256(json.dumps(_made_for(limits)).encode()).hexdigest()[:16]


def write_index(folder: str, target: str, limits: Limits, hashes: _Hashes) -> None:
    """Write the index of the tree in ``folder`` to the file ``target``.

    ``hashes`` has size and sha256 of files by their path relative to ``folder``; others are read. Raises
    :class:`OSError`.
    """
    root = os.path.realpath(folder)
    report = Report(folder)
    catalog: list[list[Any]] = []
    lists: list[bytes] = []
    at = 0
    for found in find_skills(folder, report, limits):
        loaded = load_found(found, root=root, limits=limits)
        files, digest = b"", ""
        if loaded.skill is not None:
            manifest = _manifest(found, root, limits, hashes)
            files, digest = _packed(manifest), digest_of(manifest)
        place = [os.path.relpath(found.folder, folder), found.skill_file, digest, at, len(files)]
        catalog.append([*place, to_record(loaded, folder)])
        lists.append(files)
        at += len(files)
    remarks = [{**each.to_json(), "path": os.path.relpath(each.path, folder)} for each in report.diagnostics]
    body = _packed({"skills": catalog, "diagnostics": remarks})
    header = {**_made_for(limits), "bytes": allocated(folder), "catalog": len(body)}
    with open(target, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n" + body + b"\n")
        file.writelines(lists)


def read_index(
    tree: IndexedTree, *, origin: str, remote: bool, limits: Limits
) -> tuple[list[LoadResult], list[Diagnostic]] | None:
    """Return the skills in a tree and the diagnostics about the tree, as lenient loading finds them.

    Return None without an index for this version and these limits. The caller then reads the folder.
    """
    if tree.index is None:
        return None
    try:
        with open(tree.index, "rb") as file:
            header = json.loads(file.readline())
            if {key: header[key] for key in ("version", "limits")} != _made_for(limits):
                return None
            length = int(header["catalog"])
            lists_at = file.tell() + length + 1
            body = file.read(length)
        catalog = json.loads(body)
        path, real = tree.path, os.path.realpath(tree.path)
        read = partial(from_record, root=path, real_root=real, origin=origin, remote=remote, limits=limits)
        results = [
            read(record, known=_FileList(tree.index, lists_at + at, size, digest), digest=digest)
            for _, _, digest, at, size, record in catalog["skills"]
        ]
        remarks = [Diagnostic.from_json(each) for each in catalog["diagnostics"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return results, [replace(each, path=os.path.normpath(os.path.join(path, each.path))) for each in remarks]


def size_on_disk(index: str) -> int | None:
    """Return the bytes on disk for a tree and its index. Return None if the index cannot be read."""
    try:
        with open(index, "rb") as file:
            return int(json.loads(file.readline())["bytes"]) + _blocks(os.fstat(file.fileno()).st_size)
    except (OSError, ValueError, KeyError, TypeError):
        return None


class _FileList:
    """The file list of one skill, read from the index when it is asked for."""

    __slots__ = ("_at", "_digest", "_index", "_size")

    def __init__(self, index: str, at: int, size: int, digest: str) -> None:
        self._index = index
        self._at = at
        self._size = size
        self._digest = digest

    def __call__(self) -> Mapping[str, tuple[int, str]]:
        try:
            with open(self._index, "rb") as file:
                file.seek(self._at)
                read = json.loads(file.read(self._size))
            manifest = {path: (int(size), str(sha256)) for path, (size, sha256) in read.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            manifest = {}
        if digest_of(manifest) != self._digest:
            message = f"the skill store's index {self._index} is damaged or gone; remove it, and load the skills again"
            raise ResourceError(message)
        return manifest


def _packed(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _made_for(limits: Limits) -> dict[str, Any]:
    return {"version": _VERSION, "limits": [getattr(limits, name) for name in _LIMITS]}


def _manifest(found: Found, root: str, limits: Limits, hashes: _Hashes) -> _Hashes:
    inner = found.root(root)
    listed = {
        path: hashes.get(os.path.relpath(real, root))
        for path, real, _ in walk_files(found.folder, inner, limits.skill_files, [])
    }
    known = {path: entry for path, entry in listed.items() if entry is not None}
    if len(known) == len(listed):
        return known
    return FolderFiles(found.folder, inner, found.skill_file, limits).manifest()


def allocated(folder: str) -> int:
    """Bytes on the disk, in whole blocks, the same on every machine."""
    total = _BLOCK
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += _BLOCK
                    pending.append(entry.path)
                else:
                    total += _blocks(entry.stat(follow_symlinks=False).st_size)
    return total


def _blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _below(path: str, root: str) -> str:
    if path == root:
        return "."
    start = root.rstrip("/") + "/"
    if path.startswith(start):
        return path[len(start) :]
    # A folder can have a second path, such as a link.
    folder, name = os.path.split(path)
    return os.path.relpath(os.path.join(os.path.realpath(folder), name), root)


def _above(path: str, root: str) -> str:
    return root if path == "." else f"{root.rstrip('/')}/{path}"
