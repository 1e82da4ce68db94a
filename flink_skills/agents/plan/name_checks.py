"""Checks of an agent at submission: names of tools and skills, prompts, waits and media."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import Declaration, declared_pool, read_declaration
from flink_skills.agents.declare.resource import SharedResources
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import ConfigError, PlanError, UnknownNameError
from flink_skills.options import OptionFamily, SkillConfig, SkillOptions
from flink_skills.prompts import Prompt, check_instructions, check_names, fields_of_type
from flink_skills.tools.dynamic.tool_pool import ToolPool
from flink_skills.tools.profiles import COMMAND_TOOLS, SkillSettings
from flink_skills.tools.skills.shell_tool import RUN_CODE
from flink_skills.tools.tool_names import KnownNames, NameMatch, NameUse, resolve

_FAMILIES: Sequence[OptionFamily[Any]] = (
    SkillOptions.TOOL_TIMEOUT_OF,
    SkillOptions.TOOL_MAX_OUTPUT_OF,
    SkillOptions.TOOL_MAX_CONCURRENT_OF,
    SkillOptions.TOOL_RETRIES_OF,
    SkillOptions.TOOL_LOST_CALLS_OF,
    SkillOptions.TOOL_REPEATS_OF,
)


class UnmatchedNamesError(ConfigError):
    """Names that match nothing. ``matches`` has them."""

    def __init__(self, matches: Sequence[NameMatch]) -> None:
        super().__init__("\n".join(dict.fromkeys(match.problem for match in matches)))
        self.matches = tuple(matches)


@dataclass(frozen=True)
class NamedAgent:
    """An agent with the names of its tools and skills.

    Attributes:
        plan: The plan.
        agent: The agent.
        declared: What it declares. Its tool sets know their tools if they are open.
        skills: The names of its skills. None: they are not known here.
        skill_bringers: What can bring other skills.
        has_bundled: False if no skill brings tools.
        servers: The full names of the MCP servers of plugins. None: they are not known here.
        pending_servers: Those that start when the agent opens, and bring tools.
    """

    plan: AgentPlan
    agent: Agent
    declared: Declaration
    skills: frozenset[str] | None = None
    skill_bringers: tuple[str, ...] = ()
    has_bundled: bool = True
    servers: frozenset[str] | None = None
    pending_servers: tuple[str, ...] = ()

    @cached_property
    def config(self) -> SkillConfig:
        return SkillConfig(self.plan.options)

    @cached_property
    def _settings(self) -> list[tuple[SkillSettings, bool]]:
        return self.plan.settings(self.config)

    @cached_property
    def _pool(self) -> ToolPool | None:
        return declared_pool(self.declared)

    def tool_names(self) -> frozenset[str]:
        """Return the names of all tools that a model of the agent can have, as far as they are known."""
        declared = self.declared
        found = {*declared.tools, *declared.agents, *(self._pool.names if self._pool is not None else ())}
        found |= {name for toolset in declared.all_toolsets for name in toolset.tool_names()}
        if any(of.runs_code for of, _ in self._settings):
            found.add(RUN_CODE)
        if self.plan.scopes:
            missing = set[str]() if self.config.get(SkillOptions.SHELL_ENABLED) else set(COMMAND_TOOLS)
            found |= {name for of, sees in self._settings for name in of.tools_for(sees_skills=sees)} - missing
        return frozenset(found)

    def approved_tools(self) -> list[str]:
        """Return the names of the tools that declare that their calls need an approval, sorted."""
        declared = self.declared
        found = {name for name, tool in declared.tools.items() if tool.approve}
        found |= {name for name, of in declared.agents.items() if of.manner.get("approve")}
        found |= {
            tool.spec.name for tool in (self._pool.known_tools() if self._pool is not None else ()) if tool.approve
        }
        return sorted(found)

    def tool_bringers(self, use: NameUse) -> list[str]:
        """Return what can bring a tool for ``use`` later."""
        found = [
            toolset.label
            for toolset in self.declared.all_toolsets
            if toolset.can_bring(use.pattern) and not (use.is_strict and toolset.is_complete)
        ]
        runs_commands = bool(self.plan.scopes) and self.config.get(SkillOptions.SHELL_ENABLED)
        if runs_commands and self.has_bundled and any(of.bundled for of, _ in self._settings):
            found.append("a skill with tools")
        return [*found, *(f"MCP server {name!r}" for name in self.pending_servers)]

    def known(self, kind: str) -> KnownNames:
        """Return the names of its tools or skills."""
        if kind == "tool":
            return KnownNames(self.tool_names(), self.tool_bringers)
        if kind == "plugin server":
            unread = ("a source of skills",) if self.servers is None else ()
            return KnownNames(self.servers or frozenset(), lambda use: unread)
        bringers = self.skill_bringers if self.skills is not None else ("a source of skills",)
        return KnownNames(self.skills or frozenset(), lambda use: bringers)

    def uses(self) -> Iterator[NameUse]:
        """Yield the names of tools that the agent contains."""
        key = "approve.tools" if isinstance(getattr(self.agent, "spec", None), Mapping) else "approve_tools"
        for pattern in self.agent.approve_tools:
            yield NameUse(key, pattern, is_strict=True, approves=True)
        for toolset in self.declared.all_toolsets:
            yield from toolset.name_uses()
        for model in self.plan.models:
            for pattern in model.tools or ():
                # The client rejects names that nothing can bring.
                yield NameUse(f"tools of chat model {model.name!r}", pattern, only_warns=True)


def named_tree(plan: AgentPlan, agent: Agent, declared: Declaration | None = None) -> list[NamedAgent]:
    """Return an agent and all agents that it calls, with the skills that the client has read."""
    declared = declared or read_declaration(agent)
    pending = SkillConfig(plan.options).get(SkillOptions.PLUGINS_SERVERS) if plan.scopes else ()
    servers = plan.plugin_servers if plan.scopes else frozenset[str]()
    found = [NamedAgent(plan, agent, declared, _read_skills(plan), servers=servers, pending_servers=pending)]
    for name, callee in plan.agents.items():
        found += named_tree(callee, declared.agents[name].agent)
    return found


def _read_skills(plan: AgentPlan) -> frozenset[str] | None:
    """Return the names of all skills, None if the plan has not all of them."""
    if not plan.scopes:
        return frozenset()
    filtered = [model for model in plan.models if plan.filter_of(model) is not None]
    if filtered or not plan.models or SkillConfig(plan.options).get(SkillOptions.REFRESH_INTERVAL):
        return None
    names = plan.models[0].effective_skills
    return None if names is None else frozenset(names)


def own_matches(named: NamedAgent) -> list[NameMatch]:
    """Return what the names that the agent contains match among its tools."""
    owner = f"agent {named.plan.agent_id!r}"
    return [resolve(use, owner, [named.known(use.kind)]) for use in named.uses()]


def job_matches(trees: Sequence[Sequence[NamedAgent]]) -> list[NameMatch]:
    """Return what the names in options match among the tools and skills of all agents of a job.

    Each tree is an agent with the agents that it calls. Names of skills and of plugins' servers are omitted if
    these are not known here.
    """
    agents = [named for tree in trees for named in tree]
    unknown = {"skill"} if any(named.skills is None for named in agents) else set[str]()
    unknown |= {"plugin server"} if any(named.servers is None for named in agents) else set()
    return [match for match in _job_matches(trees) if match.use.kind not in unknown]


def _job_matches(trees: Sequence[Sequence[NamedAgent]]) -> list[NameMatch]:
    if not trees:
        return []
    agents = [named for tree in trees for named in tree]
    names = list(dict.fromkeys(repr(tree[0].plan.agent_id) for tree in trees))
    owner = f"agent {names[0]}" if len(names) == 1 else f"the agents {', '.join(names)}"
    uses = _option_uses(agents[0].config)
    return [resolve(use, owner, [named.known(use.kind) for named in agents]) for use in uses]


def elsewhere_of(trees: Sequence[Sequence[NamedAgent]]) -> dict[str, bool]:
    """Return the ids of the names in options that these agents have (True), or may get (False)."""
    return {match.use.id: bool(match.names) for match in _job_matches(trees) if not match.is_error}


def without_others(matches: Sequence[NameMatch], elsewhere: Mapping[str, bool]) -> list[NameMatch]:
    """Return matches without the names that other agents have. What they may get is a warning."""
    found = []
    for match in matches:
        if match.is_error and elsewhere.get(match.use.id) is False:
            problem = f"{match.problem} Another agent of the job may get it."
            found.append(replace(match, problem=problem, is_error=False))
        elif not elsewhere.get(match.use.id):
            found.append(match)
    return found


def check_own_names(named: NamedAgent) -> None:
    """Check the names that an agent contains.

    Raises:
        UnmatchedNamesError: A name matches no tool of the agent, and nothing can bring one.
        ConfigError: The agent has an approver in YAML, and no tool needs an approval.
    """
    check_matches(own_matches(named))
    if not _section(named.agent) or named.agent.approve_tools or named.approved_tools():
        return
    any_tool = NameUse("approve", "*", is_strict=True)
    if not named.config.get(SkillOptions.TOOLS_APPROVE) and not named.tool_bringers(any_tool):
        raise ConfigError(
            f"approve of agent {named.plan.agent_id!r} has no effect: no tool of the agent needs an approval. Name the "
            "tools in approve.tools, or declare them with @tool(approve=True)"
        )


def approver_of(agent: Agent) -> str | None:
    """Return what decides about calls: ``answers`` for people, or a function or method. None: all are refused."""
    by = _section(agent).get("by")
    own = any("approve" in vars(cls) for cls in type(agent).__mro__ if not cls.__module__.startswith("flink_skills."))
    return str(by) if by else f"{type(agent).__name__}.approve" if own else None


def _section(agent: Agent) -> Mapping[str, object]:
    """Return the section ``approve`` of an agent without code, empty for other agents."""
    spec = getattr(agent, "spec", None)
    return (spec.get("approve") or {}) if isinstance(spec, Mapping) else {}


def check_matches(matches: Sequence[NameMatch]) -> None:
    """Raise :class:`UnmatchedNamesError` for names that match nothing, and that nothing can bring."""
    wrong = [match for match in matches if match.is_error]
    if wrong:
        raise UnmatchedNamesError(wrong)


def _option_uses(config: SkillConfig) -> Iterator[NameUse]:
    """Yield the names of tools and skills in options."""
    option = SkillOptions.TOOLS_APPROVE
    for pattern in config.get(option):
        yield NameUse(f"option {option.key}", pattern, is_strict=True, approves=True)
    for name in config.get(SkillOptions.PLUGINS_SERVERS):
        yield NameUse(f"option {SkillOptions.PLUGINS_SERVERS.key}", name, "plugin server", is_exact=True)
    for key in config.family(SkillOptions.PLUGINS_ENV):
        place = f"option {SkillOptions.PLUGINS_ENV.prefix}{key}"
        yield NameUse(place, key.rpartition(".")[0], "plugin server", is_exact=True)
    for family in _FAMILIES:
        for name in config.family(family):
            strict = family is SkillOptions.TOOL_LOST_CALLS_OF
            yield NameUse(f"option {family.prefix}{name}", name, is_exact=True, is_strict=strict)
    for key in config.family(SkillOptions.SKILL_ENV):
        place = f"option {SkillOptions.SKILL_ENV.prefix}{key}"
        yield NameUse(place, key.rpartition(".")[0], "skill", is_exact=True)


def check_content(agent_id: str, agent: Agent, fields: Sequence[str] | None, config: SkillConfig) -> None:
    """Check ``content_fields`` of an agent. ``fields`` are those of its events, None if they are not known.

    Raises:
        PlanError: A field is named twice or is the one of files, or a conversation would refer to content that the job
            does not store.
        UnknownNameError: Events do not have a field.
    """
    names = agent.content_fields
    for number, name in enumerate(names):
        if name in names[:number]:
            raise PlanError(f"agent {agent_id}: content_fields names {name!r} twice: remove one")
        if name == agent.files_field:
            raise PlanError(
                f"agent {agent_id}: content_fields names {name!r}, the field of files for commands: put the content "
                "into another field, or name another field in files_field"
            )
        if fields is not None and name not in fields:
            raise UnknownNameError("field", name, fields, place=f"content_fields of agent {agent_id}")
    if names and agent.session == "key" and not config.get(SkillOptions.ARTIFACTS_DIR):
        raise PlanError(
            f"agent {agent_id}: its conversations refer to the content of earlier events (session = 'key'), and the "
            f"job does not store it: set {SkillOptions.ARTIFACTS_DIR.key}"
        )


def fields_of_input(input_type: Any, *, is_tool: bool) -> Sequence[str] | None:
    """Return the fields of the events of an agent, as its ``input_type`` declares them. None: they are not known.

    An agent that is a tool and declares no ``input_type`` receives text, which has no fields.
    """
    if input_type is None:
        return () if is_tool else None
    return fields_of_type(input_type)


def check_prompts(
    agent_id: str, prompts: Mapping[str, Prompt], used: Iterable[str], fields: Sequence[str] | None
) -> None:
    """Check the placeholders of prompts.

    Args:
        agent_id: The agent, for messages.
        prompts: All prompts of the agent by name.
        used: The names of those whose template is filled with events.
        fields: The fields of the events. None: they are not known, and a turn with a wrong placeholder fails.

    Raises:
        PlanError: Instructions have a placeholder.
        UnknownNameError: A template has a placeholder that is not a field.
    """
    for name, prompt in prompts.items():
        try:
            check_instructions(prompt.system, _place(agent_id, name), fields or ())
        except ConfigError as error:
            raise PlanError(str(error)) from error
    if fields is None:
        return
    for name in dict.fromkeys(used):
        check_names(prompts[name].user, fields, _place(agent_id, name))


def _place(agent_id: str, name: str) -> str:
    return f"prompt {name!r} of agent {agent_id}"


_log = logging.getLogger("flink_skills")


def check_waits(
    agent_id: str, agent: Agent, fields: Sequence[str] | None, config: SkillConfig, shared: SharedResources
) -> None:
    """Check ``answer_field`` of an agent, and the order of its turns while one of them waits.

    Args:
        agent_id: The agent, for messages.
        agent: The agent.
        fields: The names of the fields of its events. None: they are not known.
        config: The options of the job.
        shared: What all agents of the job share.

    Raises:
        PlanError: The field is not a name, or turns with a common conversation would overtake each other.
        UnknownNameError: Events do not have the field.
    """
    name = agent.answer_field
    if not isinstance(name, str):
        raise PlanError(
            f"agent {agent_id}: answer_field is of type {type(name).__name__}: give the name of a field, or '' if no "
            "event is an answer"
        )
    if name and fields is not None and name not in fields:
        raise UnknownNameError("field", name, fields, place=f"answer_field of agent {agent_id}")
    approver = next(_approvers(agent, shared), None) if name else None
    if approver is not None:
        _log.warning(
            "agent %s: answer_field = %r and approve() of %s: the author of an event can answer its approvals. Read "
            "the answers with .answers(…) from an input that only the approvers can write",
            agent_id,
            name,
            type(approver).__name__,
        )
    option = SkillOptions.TURN_WHEN_WAITING
    if config.get(option) == "next" and agent.session == "key":
        raise PlanError(
            f"agent {agent_id}: turns of a key share a conversation (session = 'key'), and {option.key} = next lets "
            f"them overtake a turn that waits: set session = 'event' in the agent, or {option.key} to queue"
        )


def _approvers(agent: Agent, shared: SharedResources) -> Iterator[Agent]:
    """Yield the agents that decide about calls: the agent, and those that it calls."""
    if type(agent).approve is not Agent.approve:
        yield agent
    for callee in read_declaration(agent, shared).agents.values():
        yield from _approvers(callee.agent, shared)
