"""Agent, model and skill sources from command-line arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.agent_file import load_agent_yaml
from flink_skills.cli.shared_options import skill_sources
from flink_skills.errors import ConfigError
from flink_skills.job.agent_source import import_agent, search_modules
from flink_skills.manager import SkillScope
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig, SkillOptions

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan
    from flink_skills.flink.agents_environment import AgentsExecutionEnvironment


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


def model_setup(model: str | None, base_url: str | None, api_key_env: str | None = None) -> ModelSetup | None:
    """Return the model of ``--model``, ``--base-url`` and ``--api-key-env``. Return None for the agent's own model."""
    if model is None:
        for option, value in (("--base-url", base_url), ("--api-key-env", api_key_env)):
            if value is not None:
                raise ConfigError(f"{option} requires --model PROVIDER:NAME")
        return None
    provider, _, name = model.partition(":")
    return ModelSetup(provider=provider, model=name, base_url=base_url, api_key_env=api_key_env)


def compile_agent(
    agent: Agent,
    skills: Sequence[str],
    config: SkillConfig,
    model: ModelSetup | None,
    environment: AgentsExecutionEnvironment | None = None,
) -> AgentPlan:
    """Compile an agent for JSON events.

    Args:
        agent: The agent.
        skills: Sources from ``--skills``.
        config: Options from ``--set``.
        model: Model that replaces the agent's models.
        environment: The job's environment. None: turns run in this process.
    """
    from flink_skills.flink.agents_environment import AgentsExecutionEnvironment

    environment = environment or AgentsExecutionEnvironment.get_execution_environment()
    for key in config:
        environment.get_config().set(key, config.get(key))
    paths, urls = skill_sources(skills)
    environment.add_skills_from_paths(paths).add_skills_from_urls(urls)
    return environment.compile(agent, local=True, events="json", outputs="record", model=model)


def job_scope(sources: Sequence[str], config: SkillConfig) -> SkillScope:
    """Return the skill scope of a job: ``sources``, or the sources that ``config`` sets if ``sources`` is empty."""
    if sources:
        paths, urls = skill_sources(sources)
        return SkillScope("job", paths, urls=urls)
    options = (SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS)
    return SkillScope("job", *(config.get(option) for option in options))
