"""From the words of the command line to an agent and its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flink_skills.agents.agent import Agent
from flink_skills.agents.agent_file import load_agent_yaml
from flink_skills.agents.models.setup import ModelSetup
from flink_skills.cli.places import source_word
from flink_skills.errors import ConfigError
from flink_skills.job.agent_source import import_agent, search_modules
from flink_skills.manager import SkillScope
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["PlainAgent", "find_agent", "job_scope", "model_setup", "skill_sources"]


class PlainAgent(Agent):
    """The agent of ``flink-skills run`` without AGENT."""

    def __init__(self, spec: dict[str, str]) -> None:
        self.spec = spec
        self.name = "plain"
        self.instructions = spec["instructions"]
        self.model = "offline"

    @classmethod
    def from_spec(cls, spec: dict[str, str]) -> PlainAgent:
        """The agent of its spec, in a worker."""
        return cls(spec)


def find_agent(word: str | None, instructions: str) -> Agent:
    """The agent that ``word`` names: nothing (a plain agent), a YAML file or ``module:Class``."""
    if word is None:
        return PlainAgent({"instructions": instructions})
    if instructions:
        raise ConfigError("--instructions is for a plain agent; leave it out together with AGENT")
    if word.endswith((".yaml", ".yml")):
        search_modules([Path(word).parent, Path.cwd()])
        return load_agent_yaml(word)
    search_modules([Path.cwd()])
    return import_agent(word, f"AGENT {word!r}")


def model_setup(model: str | None, base_url: str | None) -> ModelSetup | None:
    """The model of ``--model`` and ``--base-url``; None where the agent's own counts."""
    if model is None:
        if base_url is not None:
            raise ConfigError("--base-url needs --model PROVIDER:NAME")
        return None
    provider, _, name = model.partition(":")
    return ModelSetup(provider=provider, model=name, base_url=base_url)


def skill_sources(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Paths (made absolute) and URLs of ``--skills``."""
    places = [source_word(word) for word in words]
    return [place for kind, place in places if kind == "path"], [place for kind, place in places if kind == "url"]


def job_scope(words: Sequence[str], config: SkillConfig) -> SkillScope:
    """Return the skills of a job: the sources ``words``, or those that ``config`` names if there are no words."""
    if words:
        paths, urls = skill_sources(tuple(words))
        return SkillScope("job", paths, urls=urls)
    sources = (SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS)
    return SkillScope("job", *(config.get(option) for option in sources))
