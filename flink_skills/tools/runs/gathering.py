"""Fetch the output files of a run from its workspace, and save those that are to be artifacts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace
from flink_skills.execution.workspace import Collected, CollectedFile
from flink_skills.tools.base import ToolContext
from flink_skills.tools.runs.outputs import OutputRequest, entry_of, text_of
from flink_skills.tools.runs.prepare import PreparedRun
from flink_skills.tools.runs.saving import Outcome, save_outputs
from flink_skills.tools.services import ToolServices

__all__ = ["Gathered", "gather"]

_SHOWN_NAMES = 10
# One file of the largest size; a result is part of the conversation from then on.
_MOST_INLINE = 4 << 20


@dataclass
class Gathered:
    """What was found: ``entries`` as the result shows them, ``files`` with those that were not asked for by name.

    ``saved`` are the versions of artifacts by their names, ``room`` the bytes that contents may still have.
    """

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, CollectedFile] = field(default_factory=dict)
    saved: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    room: int = _MOST_INLINE

    def add(self, file: CollectedFile, content: str | None) -> None:
        """Show a file, with its content as long as the result has room for it."""
        if file.name in self.entries:
            return
        size = len(content.encode()) if content else 0
        if size > self.room:
            self.warnings.append(f"the content of {file.name} was left out: the result holds {_MOST_INLINE} bytes")
            content, size = None, 0
        self.room -= size
        self.entries[file.name] = entry_of(file, content)


async def gather(prepared: PreparedRun, failed: bool, services: ToolServices, context: ToolContext) -> Gathered:
    """The output files of a run that has ended; ``failed`` says that its command did.

    What cannot be fetched or saved is a warning: the command has run, and what it said counts.
    """
    found = Gathered()
    for request in prepared.requests:
        try:
            await _fetch(request, prepared, services, context, found, failed=failed)
        except ExecutionError as error:
            found.warnings.append(f"outputs {', '.join(request.patterns[:_SHOWN_NAMES])}: {error}")
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
    found.files.update((file.name, file) for file in kept)
    if request.since:
        return
    empty = [file.name for file in collected.files if file not in kept]
    if empty:
        # Row F25: an empty file is where the output of a command that failed would have gone.
        found.warnings.append(f"empty files left out, as the command failed: {_shown(empty)}")
    found.warnings += _limits_hit(request, collected)
    for file in kept:
        content = text_of(file.data, file.truncated, prepared.shell.hidden) if request.inline else None
        found.add(file, content)
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


def _collect(workspace: Workspace, request: OutputRequest) -> Collected:
    found = workspace.collect(
        request.patterns,
        max_files=request.max_files,
        max_file_bytes=request.max_file_bytes,
        max_total_bytes=request.max_total_bytes,
    )
    if not request.since:
        return found
    fresh = [file for file in found.files if _changed_since(workspace, file.name, request.since)]
    return Collected(tuple(fresh[: request.keep]))


def _changed_since(workspace: Workspace, name: str, since: int) -> bool:
    """Whether a file is of this run: a command can choose the time of modification, but not that of the change."""
    try:
        return (workspace.root / name).lstat().st_ctime_ns >= since
    except OSError:
        return False


def _limits_hit(request: OutputRequest, collected: Collected) -> list[str]:
    values = {
        "max_files": request.max_files,
        "max_file_bytes": request.max_file_bytes,
        "max_total_bytes": request.max_total_bytes,
    }
    said = [f"outputs reached {name} ({values[name]})" for name in collected.limits_hit if name in values]
    said += [f"outputs reached {name}" for name in collected.limits_hit if name not in values]
    if not collected.files and not collected.problems:
        said.append(f"no file matches {_shown(request.patterns)}")
    return [*said, *collected.problems]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more
