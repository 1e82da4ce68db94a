"""Connections, chat models and prompts that all agents of a job file share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.shared import SharedResources
from flink_skills.agents.plan.declarative import descriptor_of, prompt_of
from flink_skills.errors import SkillsError
from flink_skills.job.reading import ReadJob

if TYPE_CHECKING:
    from flink_skills.flink.environment import AgentsExecutionEnvironment

__all__ = ["add_resources", "shared_resources"]


def add_resources(read: ReadJob, agents_env: AgentsExecutionEnvironment) -> None:
    """Add the shared resources of a job to its environment.

    Raises :class:`DocumentError` at the place of a resource that is wrong.
    """
    for part, name, value in _written(read):
        try:
            agents_env.add_resource(name, _resource(part, value))
        except SkillsError as error:
            raise read.problem((part, name), str(error).removeprefix("prompt: ")) from error


def shared_resources(read: ReadJob) -> SharedResources:
    """Return the shared resources of a job that can be used. :func:`add_resources` reports the others."""
    found = SharedResources()
    for part, name, value in _written(read):
        try:
            found = found.with_resource(name, _resource(part, value))
        except SkillsError:
            continue
    return found


def _written(read: ReadJob) -> Iterator[tuple[str, str, Any]]:
    for part in ("connections", "models", "prompts"):
        for name, value in (getattr(read.job, part) or {}).items():
            yield part, name, value if isinstance(value, str) else value.model_dump(exclude_none=True)


def _resource(part: str, value: Any) -> Any:
    return prompt_of(value, "prompt") if part == "prompts" else descriptor_of(value, part)
