"""Agent, model and skill sources from command-line arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.agent_file import load_agent_yaml
from flink_skills.cli.shared_options import skill_sources
from flink_skills.errors import ConfigError
from flink_skills.job.agent_source import import_agent, search_modules
from flink_skills.manager import SkillScope
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig, SkillOptions


class PlainAgent(Agent):
    """Default agent of commands that run without an AGENT argument."""

    def __init__(self, spec: dict[str, str]) -> None:
        self.spec = spec
        self.name = "plain"
        self.instructions = spec["instructions"]
        self.model = "offline"

    @classmethod
    def from_spec(cls, spec: dict[str, str]) -> PlainAgent:
        """Create the agent from its spec in a worker."""
        return cls(spec)


def find_agent(reference: str | None, instructions: str) -> Agent:
    """Return the agent that ``reference`` names: a YAML file or ``module:Class``. None selects a plain agent."""
    if reference is None:
        return PlainAgent({"instructions": instructions})
    if instructions:
        raise ConfigError(
            "--instructions cannot be combined with an agent: the agent has its own instructions. Omit one of them."
        )
    if reference.endswith((".yaml", ".yml")):
        search_modules([Path(reference).parent, Path.cwd()])
        return load_agent_yaml(reference)
    search_modules([Path.cwd()])
    return import_agent(reference, f"AGENT {reference!r}")


def model_setup(model: str | None, base_url: str | None) -> ModelSetup | None:
    """Return the model of ``--model`` and ``--base-url``. Return None to use the agent's own model."""
    if model is None:
        if base_url is not None:
            raise ConfigError("--base-url requires --model PROVIDER:NAME")
        return None
    provider, _, name = model.partition(":")
    return ModelSetup(provider=provider, model=name, base_url=base_url)


def job_scope(sources: Sequence[str], config: SkillConfig) -> SkillScope:
    """Return the skill scope of a job: ``sources``, or the sources that ``config`` sets if ``sources`` is empty."""
    if sources:
        paths, urls = skill_sources(sources)
        return SkillScope("job", paths, urls=urls)
    options = (SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS)
    return SkillScope("job", *(config.get(option) for option in options))
