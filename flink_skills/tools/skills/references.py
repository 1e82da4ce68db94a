"""References to files as a model may use them: ``skill://``, ``workspace://`` and ``artifact://``."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.skills.face import known_skill

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.artifacts.reference import Reference
    from flink_skills.manager.view import SkillView

__all__ = ["artifact_data", "resolve_reference"]


def resolve_reference(text: str, view: SkillView, context: ToolContext, artifacts: ArtifactStore | None) -> Reference:
    """Return the file that ``text`` names for the calling model.

    A skill has the name that ``view`` has for it. An artifact without a version has the version that the conversation
    saved, because a restart has to read the same one.

    Raises:
        ArgumentError: ``view`` does not have the skill, the job does not store artifacts, or the file is of the host.
        ArtifactError: ``text`` is not a reference.

    >>> resolve_reference("skill://Billing/a.md", view, context, None).skill
    'billing'
    """
    # A model that reads only files of skills by name does not import this module.
    from flink_skills.artifacts.reference import parse_reference
    from flink_skills.tools.skills.staged import check_staged

    reference = parse_reference(text)
    if reference.scheme == "skill":
        return replace(reference, skill=known_skill(reference.skill, view))
    if reference.scheme == "workspace":
        check_staged(reference.path, view)
        return reference
    if reference.scheme == "host":
        raise ArgumentError(f"{text!r} cannot be read: no file of the machine can. Have it as an input of a run.")
    if artifacts is None:
        raise ArgumentError(f"{text!r} cannot be read: this job has no artifacts.")
    if reference.version is None and context.skill_state is not None:
        return replace(reference, version=context.skill_state.artifacts.get(reference.path))
    return reference


async def artifact_data(reference: Reference, context: ToolContext, artifacts: ArtifactStore) -> bytes:
    """Return the content of the artifact of :func:`resolve_reference`. Raises :class:`ArtifactError`."""
    _, data = await asyncio.to_thread(artifacts.load, context.owner, reference.path, reference.version)
    return data
