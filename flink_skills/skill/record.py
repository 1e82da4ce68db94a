"""A loaded skill as JSON, for the index that a store keeps beside a tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from flink_skills.skill.diagnostic import Diagnostic
from flink_skills.skill.fields import EMPTY, Fields
from flink_skills.skill.files import FolderFiles, SkillFiles
from flink_skills.skill.limits import Limits
from flink_skills.skill.loader import LoadResult
from flink_skills.skill.model import AgentSkill

__all__ = ["from_record", "to_record"]


def to_record(result: LoadResult, root: str) -> dict[str, Any]:
    """What lenient loading found, as JSON data with paths relative to ``root``; defaults are left out.

    >>> to_record(LoadResult(None, (), strict_valid=False), "/skills")
    {}
    """
    record: dict[str, Any] = {}
    if result.strict_valid:
        record["valid"] = True
    if result.diagnostics:
        record["notes"] = [
            [each.code, each.severity, each.message, each.skill, _below(each.path, root), each.line, each.fix]
            for each in result.diagnostics
        ]
    skill = result.skill
    if skill is not None:
        record["folder"] = _below(skill.path or root, root)
        record["name"] = skill.name
        record["description"] = skill.description
        for key, value in (
            ("license", skill.license),
            ("compatibility", skill.compatibility),
            ("metadata", dict(skill.metadata)),
            ("extra", dict(skill.extra)),
        ):
            if value:
                record[key] = value
        if skill.allowed_tools is not None:
            record["tools"] = list(skill.allowed_tools)
        if skill.files.skill_file != "SKILL.md":
            record["file"] = skill.files.skill_file
        if skill.form != "skill":
            record["form"] = skill.form
    return record


def from_record(
    record: Mapping[str, Any],
    *,
    root: str,
    origin: str,
    remote: bool,
    limits: Limits,
    files: SkillFiles | None,
    digest: str | None = None,
) -> LoadResult:
    """The result that :func:`to_record` wrote, for a tree that now lies in ``root``.

    ``files`` is None where they are read from the folder. Raises :class:`KeyError`, :class:`TypeError` or
    :class:`ValueError` for what is no record.
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
    folder = _above(record["folder"], root)
    skill_file = record.get("file", "SKILL.md")
    skill = AgentSkill.from_folder(
        folder,
        fields,
        root=root,
        skill_file=skill_file,
        origin=origin,
        remote=remote,
        limits=limits,
        form=record.get("form", "skill"),
        files=FolderFiles(folder, os.path.realpath(root), skill_file, limits) if files is None else files,
        digest=digest,
    )
    return LoadResult(skill, notes, valid)


def _below(path: str, root: str) -> str:
    if path == root:
        return "."
    start = root.rstrip("/") + "/"
    if path.startswith(start):
        return path[len(start) :]
    # The same folder by another way, such as a link to it.
    folder, name = os.path.split(path)
    return os.path.relpath(os.path.join(os.path.realpath(folder), name), root)


def _above(path: str, root: str) -> str:
    return root if path == "." else f"{root.rstrip('/')}/{path}"
