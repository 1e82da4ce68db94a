"""Outputs that become artifacts. What cannot be saved stays a file, and the result says why."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flink_skills.errors import SkillsError
from flink_skills.execution.workspace import CollectedFile
from flink_skills.options import SkillOptions
from flink_skills.tools.base import ToolContext
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.services import ToolServices

__all__ = ["NO_ARTIFACTS", "Outcome", "Saved", "save_outputs"]

NO_ARTIFACTS = f"this job saves no artifacts: {SkillOptions.ARTIFACTS_DIR.key} is not set"


class Saved(NamedTuple):
    """An artifact of a run."""

    name: str
    version: str


@dataclass(frozen=True)
class Outcome:
    """What was saved, and why what was not."""

    saved: tuple[Saved, ...] = ()
    warnings: tuple[str, ...] = ()


async def save_outputs(
    files: Sequence[CollectedFile], prefix: str, services: ToolServices, context: ToolContext
) -> Outcome:
    """Save ``files`` as ``prefix`` and their name in the workspace. Never fails a run: its files are there."""
    if not files:
        return Outcome()
    store = services.artifacts
    hidden = services.shell.hidden if services.shell is not None else HiddenValues()
    if store is None:
        return Outcome(warnings=(f"output files were not saved, they stay in the workspace: {NO_ARTIFACTS}",))
    saved: list[Saved] = []
    # By reason: many files that fail alike are one warning.
    failed: dict[tuple[type[SkillsError] | None, str], list[tuple[str, str]]] = {}
    for file in files:
        name = f"{prefix}{file.name}"
        if file.truncated:
            too_large = f"the file has {file.size} bytes, more than the limits of outputs allow"
            failed.setdefault((None, "too-large"), []).append((file.name, too_large))
            continue
        if hidden.in_text(name) != name:
            failed.setdefault((None, "hidden"), []).append((file.name, "the name contains a value of skills.env"))
            continue
        try:
            artifact = await asyncio.to_thread(store.save, context.owner, name, file.data, file.mime_type)
        except SkillsError as error:
            alike = (type(error), getattr(error, "reason", ""))
            failed.setdefault(alike, []).append((file.name, str(error)))
        else:
            saved.append(Saved(artifact.name, artifact.version))
    return Outcome(tuple(saved), tuple(_told(names) for names in failed.values()))


def _told(failed: Sequence[tuple[str, str]]) -> str:
    name, why = failed[0]
    return f"{name} was not saved: {why}" if len(failed) == 1 else f"{len(failed)} files were not saved; {name}: {why}"
