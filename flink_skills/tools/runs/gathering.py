"""Fetch the output files of a run from its workspace, and save those that are to be artifacts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace
from flink_skills.execution.workspace import Collected, CollectedFile
from flink_skills.telemetry.activity import observe
from flink_skills.tools.base import ToolContext
from flink_skills.tools.runs.outputs import OutputRequest, entry_of, primary_of, text_of, unmatched
from flink_skills.tools.runs.prepare import PreparedRun
from flink_skills.tools.runs.saving import Outcome, save_outputs
from flink_skills.tools.services import ToolServices

__all__ = ["Gathered", "gather"]

_SHOWN_NAMES = 10
# One file of the largest size; a result is part of the conversation from then on.
_MAX_INLINE = 4 << 20


@dataclass
class Gathered:
    """What was found: ``entries`` as the result shows them, ``files`` with those that were not asked for by name.

    ``saved`` are the versions of artifacts by their names, ``primary`` is the primary output.
    """

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, CollectedFile] = field(default_factory=dict)
    saved: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    contents: dict[str, str | None] = field(default_factory=dict)
    primary: dict[str, Any] | None = None

    def show(self) -> None:
        """Make the entries, with the contents that the result has room for: the smallest first, so that most fit."""
        sizes = {name: _size_in_json(content) for name, content in self.contents.items() if content}
        room, left_out = _MAX_INLINE, set()
        for name in sorted(sizes, key=lambda name: sizes[name]):
            if sizes[name] > room:
                left_out.add(name)
            else:
                room -= sizes[name]
        for name, content in self.contents.items():
            self.entries[name] = entry_of(self.files[name], None if name in left_out else content)
        if left_out:
            first = min(left_out)
            said = f"the contents of {len(left_out)} files were" if len(left_out) > 1 else f"the content of {first} was"
            more = f"; first: {first}" if len(left_out) > 1 else ""
            self.warnings.append(f"{said} left out: the result holds {_MAX_INLINE} bytes{more}")


async def gather(
    prepared: PreparedRun, failed: bool, omit: bool, services: ToolServices, context: ToolContext
) -> Gathered:
    """The output files of a run that has ended; ``failed`` says that its command did, ``omit`` to leave contents out.

    What cannot be fetched or saved is a warning: the command has run, and what it said counts.
    """
    found = Gathered()
    skill = prepared.skill_name
    # Few at once: each may hold as many bytes as its limits allow, and a worker has a thousand turns.
    async with prepared.shell.gathering:
        with observe("collect", skill, skill=skill, call_id=context.call_id) as activity:
            for request in prepared.requests:
                try:
                    await _fetch(request, prepared, services, context, found, failed=failed)
                except ExecutionError as error:
                    found.warnings.append(f"outputs {', '.join(request.patterns[:_SHOWN_NAMES])}: {error}")
            activity.attributes.update(files=len(found.files), bytes=sum(file.size for file in found.files.values()))
        await asyncio.to_thread(found.show)
        found.primary = primary_of(list(found.files.values()), omit, prepared.shell.hidden)
        found.files.clear()
    return found


async def _fetch(
    request: OutputRequest,
    prepared: PreparedRun,
    services: ToolServices,
    context: ToolContext,
    found: Gathered,
    *,
    failed: bool,
) -> None:
    collected = await asyncio.to_thread(_collect, prepared.workspace, request)
    kept = [file for file in collected.files if file.size or not failed]
    if request.exported:
        _export(kept, request.exported, prepared, found)
        return
    empty = [file.name for file in collected.files if file not in kept]
    if empty:
        # An empty file is where the output of a command that failed would have gone.
        found.warnings.append(f"empty files left out, as the command failed: {_shown(empty)}")
    found.warnings += _limits_hit(request, collected)
    for file in kept:
        if file.name not in found.files:
            found.files[file.name] = file
            found.contents[file.name] = (
                text_of(file.data, file.truncated, prepared.shell.hidden) if request.inline else None
            )
    outcome = await save_outputs(kept, request.prefix, services, context) if request.save else Outcome()
    found.saved.update(outcome.saved)
    found.warnings += outcome.warnings
    record = {
        "globs": list(request.patterns),
        "saved_as": [one.name for one in outcome.saved],
        "versions": [one.version for one in outcome.saved],
        "limits_hit": list(collected.limits_hit),
    }
    await asyncio.to_thread(prepared.workspace.note_outputs, record)


def _export(files: Sequence[CollectedFile], most: int, prepared: PreparedRun, found: Gathered) -> None:
    """Add the new files to ``found``, unless another command ran meanwhile: its files cannot be distinguished."""
    fresh = [file for file in files if prepared.span.covers(file.changed_ns)]
    if fresh and not prepared.span.alone:
        found.warnings.append(
            f"new files were not looked at, as another command ran in this workspace meanwhile: name those of this one "
            f"in output_files. New: {_shown([file.name for file in fresh])}"
        )
        return
    found.files.update((file.name, file) for file in fresh[:most])


def _size_in_json(content: str) -> int:
    """Characters of a text in a result: signs that no line holds take six times their size there."""
    return len(json.dumps(content, ensure_ascii=False)) - len('""')


def _collect(workspace: Workspace, request: OutputRequest) -> Collected:
    return workspace.collect(
        request.patterns,
        max_files=request.max_files,
        max_file_bytes=request.max_file_bytes,
        max_total_bytes=request.max_total_bytes,
    )


def _limits_hit(request: OutputRequest, collected: Collected) -> list[str]:
    values = {
        "max_files": request.max_files,
        "max_file_bytes": request.max_file_bytes,
        "max_total_bytes": request.max_total_bytes,
    }
    said = [f"outputs reached {name} ({values[name]})" for name in collected.limits_hit if name in values]
    said += [f"outputs reached {name}" for name in collected.limits_hit if name not in values]
    # What a limit kept out, or could not be read, may have been what a pattern meant.
    kept_out = collected.problems or set(collected.limits_hit) - {"max_file_bytes"}
    missed = [] if kept_out else unmatched(request.patterns, collected.files)
    if missed:
        said.append(f"the workspace has no file that matches {_shown(missed)}")
    return [*said, *collected.problems]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more
