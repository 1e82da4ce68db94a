"""The inputs of a run: artifacts, files of the workspace, of skills and, where the job grants it, of the machine.

A file is copied into the workspace, or linked if it is in the workspace already.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flink_skills.artifacts import Reference, parse_reference
from flink_skills.execution.workspace import Placed, WorkspacePathError, default_place, media_type, place_parts
from flink_skills.options import SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.runs.run_arguments import RunInput
from flink_skills.tools.runs.run_outputs import NO_ARTIFACTS
from flink_skills.tools.runs.run_paths import Places
from flink_skills.tools.skills.services import ToolServices
from flink_skills.tools.skills.skill_face import caller_view, known_skill
from flink_skills.tools.skills.skill_paths import check_staged, relative_path, skill_file
from flink_skills.tools.state import pin_effect

_SNIFFED = 8192


@dataclass
class StagedInputs:
    """Records of the inputs for the result, warnings, and effects: the versions that were pinned."""

    records: list[Mapping[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    effects: list[Mapping[str, Any]] = field(default_factory=list)


async def stage_inputs(
    asked: Sequence[RunInput], places: Places, services: ToolServices, context: ToolContext
) -> StagedInputs:
    """Stage the inputs in this order.

    Raises :class:`ArgumentError` for an input that does not exist or that the job does not allow, and
    :class:`~flink_skills.errors.ExecutionError` if it cannot be written to the workspace.
    """
    stager = _Stager(places, services, context)
    for one in asked:
        await stager.stage(one)
    return stager.staged


class _Stager:
    """Stages inputs in a workspace, one after another."""

    def __init__(self, places: Places, services: ToolServices, context: ToolContext) -> None:
        self._places = places
        self._workspace = places.workspace
        self._services = services
        self._context = context
        self.staged = StagedInputs()

    async def stage(self, one: RunInput) -> None:
        reference = self._reference(one.source)
        if reference.scheme == "artifact":
            placed, mime_type = await self._artifact(one, reference)
        else:
            placed, mime_type = await self._file(one, reference)
        if placed.skipped:
            self.staged.warnings.append(f"{one.source}: {placed.skipped} links and the like in it were left out")
        if one.mode == "link" != placed.mode:
            self.staged.warnings.append(f"{one.source} was copied: only what is in the workspace is linked")
        record = {"name": placed.to, "original_name": one.source}
        if mime_type:
            record["mime_type"] = mime_type
        self.staged.records.append({**record, "size_bytes": placed.size_bytes})

    def _reference(self, text: str) -> Reference:
        """Return the reference ``text``. A path that a result or a skill shows stands for the reference of its file."""
        path = text.strip()
        if "://" not in path:
            found = skill_file(path, caller_view(self._services, self._context))
            if found is not None:
                return Reference("skill", found.path, skill=found.skill)
            if path.startswith(("/", "$")) or relative_path(path) is not None:
                inside = self._places.relative("input", path)
                if inside is not None:
                    return Reference("workspace", inside)
        return parse_reference(text)

    async def _artifact(self, one: RunInput, reference: Reference) -> tuple[Placed, str]:
        store, state = self._services.artifacts, self._context.skill_state
        if store is None:
            raise ArgumentError(f"input {one.source!r}: {NO_ARTIFACTS}.")
        name, version = reference.path, reference.version
        to = _place(one.to, posixpath.basename(name), self._places)
        pinned = state.pinned(to, name) if state is not None and one.pin else None
        if version is None and state is not None:
            # The version that this conversation saved is in its state, so that a restart uses the same one.
            version = pinned or state.artifacts.get(name)
        artifact, data = await asyncio.to_thread(store.load, self._context.owner, name, version)
        record = {"from": one.source, "resolved": artifact.ref, "version": artifact.version}
        placed = await asyncio.to_thread(self._workspace.place, to, data=data, record=record)
        if one.pin and pinned is None and reference.version is None:
            self.staged.effects.append(pin_effect(to, artifact.name, artifact.version))
        return placed, artifact.mime_type

    async def _file(self, one: RunInput, reference: Reference) -> tuple[Placed, str]:
        source, base = await self._source(one.source, reference)
        record = {"from": one.source, "resolved": str(source), "version": None}
        root = self._workspace.root
        if source.is_relative_to(root):
            check_staged(source.relative_to(root).as_posix(), caller_view(self._services, self._context))
        to = _place(one.to, base, self._places)
        placed = await asyncio.to_thread(self._workspace.place, to, source=source, mode=one.mode, record=record)
        return placed, await asyncio.to_thread(self._mime_type, placed, source)

    async def _source(self, text: str, reference: Reference) -> tuple[Path, str]:
        """Return the source file or directory, and its name."""
        base = posixpath.basename(reference.path.rstrip("/"))
        if reference.scheme == "workspace":
            return self._workspace.root / _relative(text, reference.path, self._places), base
        if reference.scheme == "host":
            return await asyncio.to_thread(_granted, text, reference.path, self._services), base
        view = caller_view(self._services, self._context)
        skill = view.get(known_skill(reference.skill, view))
        path = posixpath.normpath(reference.path.replace("\\", "/").lstrip("/"))
        if skill is None or path.split("/", 1)[0] == "..":
            raise ArgumentError(f"input {text!r} leads out of the skill: name a file of it.")
        folder = await asyncio.to_thread(self._workspace.stage, skill)
        return folder / path, base or skill.name

    def _mime_type(self, placed: Placed, source: Path) -> str:
        """Return the media type of a staged file, "" for a directory."""
        path = placed.to if placed.mode == "copy" else source.relative_to(self._workspace.root).as_posix()
        try:
            return media_type(path, self._workspace.read_part(path, 0, _SNIFFED).data)
        except WorkspacePathError:
            return ""


def _relative(source: str, path: str, places: Places) -> str:
    found = places.relative("input", path)
    if found is None:
        raise ArgumentError(f"input {source!r} is outside the workspace: write workspace://out/… or another of its.")
    # inputs/x means work/inputs/x, as in other paths.
    return f"work/{found}" if found.startswith("inputs/") else found


def _granted(source: str, path: str, services: ToolServices) -> Path:
    """Return the real path of a file of the host, if the job allows it."""
    option = SkillOptions.RUN_HOST_INPUTS
    granted = [os.path.realpath(folder) for folder in services.config.get(option)]
    if not granted:
        raise ArgumentError(f"input {source!r}: this job grants no files of the machine ({option.key} is empty).")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(folder) for folder in granted):
        raise ArgumentError(f"input {source!r}: this job grants files below {', '.join(granted)} only ({option.key}).")
    if services.shell is not None:
        workspaces = Path(os.path.realpath(services.shell.workspaces.root))
        # A granted directory can contain the workspaces of all keys.
        if real.is_relative_to(workspaces) or workspaces.is_relative_to(real):
            raise ArgumentError(f"input {source!r} has workspaces in it: name files of this one as workspace://path.")
    return real


def _place(to: str, base: str, places: Places) -> str:
    """Return the place of an input in the workspace: in ``work/inputs``, unless ``to`` names a folder of it."""
    text = to.strip().replace("\\", "/")
    if not text:
        return default_place(base)
    path = places.relative("inputs.to", f"{text}{base}" if text.endswith("/") else text)
    if path is None:
        raise ArgumentError(f"inputs.to {to!r} leads out of the workspace: write work/inputs/… or leave it out.")
    first = path.split("/", 1)[0]
    if first not in ("work", "inputs", "out", "runs", "skills"):
        path = f"work/inputs/{path}"
    return "/".join(place_parts(path))
