"""Compiles an agent to its plan in the client. Checks the declarations, and records how workers get the code."""

from __future__ import annotations

import base64
import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import (
    Declaration,
    DeclaredAgent,
    agent_id,
    declared_pool,
    name_list,
    read_declaration,
)
from flink_skills.agents.declare.kinds import not_an_agent
from flink_skills.agents.declare.resource import ResourceDescriptor, SharedResources
from flink_skills.agents.declare.subagent import agent_tool_spec
from flink_skills.agents.plan.name_checks import (
    NamedAgent,
    check_content,
    check_own_names,
    check_prompts,
    check_waits,
    fields_of_input,
)
from flink_skills.agents.plan.plan import AgentPlan, ModelPlan
from flink_skills.errors import ConfigError, PlanError, SkillsError, UnknownNameError
from flink_skills.hints import is_class
from flink_skills.manager import SkillScope
from flink_skills.models.fallback import Fallback
from flink_skills.models.registry import check_setup, class_advice, provider_names
from flink_skills.models.setup import SETTINGS, ModelSetup, is_setting
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.other_frameworks import SETUP_WORDS
from flink_skills.sources.prefixes import AllowedPrefixes
from flink_skills.tools.dynamic.tool_pool import check_tool_name
from flink_skills.tools.profiles import MODEL_KEYS, TOOL_NAMES, SkillSettings
from flink_skills.tools.tool_names import matches

_log = logging.getLogger("flink_skills")
# Settings whose content is for one provider.
_OF_PROVIDER = ("cache_key", "extra_body", "extra_headers", "session_header")


def with_fallbacks(declared: Declaration, models: Sequence[ModelPlan]) -> list[ModelPlan]:
    """Return ``models`` with the fallbacks that their setups name.

    Raises:
        UnknownNameError: A fallback is neither a chat model of the agent nor ``provider:model``.
        PlanError: A model names itself or another one twice, or a fallback may see less than the model.
    """
    by_name = {model.name: model for model in models}
    found = []
    for model in models:
        place = f"chat model {model.name!r} of agent {declared.agent_id}"
        try:
            names = name_list(declared.setups[model.name].arguments.get("fallback"), f"{place}: fallback") or ()
        except ConfigError as error:
            raise PlanError(str(error)) from error
        for at, name in enumerate(names):
            if name == model.name or name in names[:at]:
                what = "the model itself" if name == model.name else "listed twice"
                raise PlanError(f"{place}: fallback: {name!r} is {what}; remove it")
        found.append(replace(model, fallback=tuple(_fallback(declared, model, name, by_name, place) for name in names)))
    return found


def _fallback(
    declared: Declaration, model: ModelPlan, name: str, models: Mapping[str, ModelPlan], place: str
) -> Fallback:
    if name in models:
        _check_scope(declared, model, models[name], place)
        return Fallback(name, models[name].setup)
    if ":" not in name and name not in provider_names():
        raise UnknownNameError("chat model", name, models, place=f"fallback of {place}")
    setup = _setup_like(model.setup, name)
    if setup.label == model.setup.label:
        raise PlanError(f"{place}: fallback: {name!r} is the model itself; remove it")
    try:
        check_setup(setup)
    except UnknownNameError:
        raise
    except SkillsError as error:
        raise PlanError(f"{place}: fallback: {error}; or declare {name!r} as a chat model and name that") from error
    return Fallback(name, setup)


def _setup_like(first: ModelSetup, text: str) -> ModelSetup:
    """Return the setup of ``provider:model``: as ``first`` if the provider is the same, else with its neutral
    settings."""
    setup = ModelSetup.parse(text)
    if setup.provider == first.provider:
        return replace(first, model=setup.model, price=None)
    neutral = {key: of for key, of in first.settings.items() if key in SETTINGS and key not in _OF_PROVIDER}
    return replace(setup, settings=neutral, strategy=first.strategy)


def _check_scope(declared: Declaration, model: ModelPlan, fallback: ModelPlan, place: str) -> None:
    """Raise :class:`PlanError` if ``fallback`` may not see all skills and tools of ``model``."""
    skills = _filter(declared, model)
    if fallback.skill_names is not None and (skills is None or not skills <= set(fallback.skill_names)):
        raise _narrower(place, fallback, "skill_names", skills and skills - set(fallback.skill_names))
    tools = model.tools
    if tools is None and not declared.toolsets:
        tools = (*declared.own_tools, *declared.agents)
    allowed = fallback.tools
    if allowed is not None and (tools is None or not all(matches(tool, allowed) for tool in tools)):
        missing = None if tools is None else {tool for tool in tools if not matches(tool, allowed)}
        raise _narrower(place, fallback, "tools", missing)


def _filter(declared: Declaration, model: ModelPlan) -> set[str] | None:
    filters = [set(names) for names in declared.skill_filters]
    if model.skill_names is not None:
        filters.append(set(model.skill_names))
    return set.intersection(*filters) if filters else None


def _narrower(place: str, fallback: ModelPlan, key: str, missing: Collection[str] | None) -> PlanError:
    what = "skills" if key == "skill_names" else key
    lacks = f"lacks {', '.join(sorted(missing))}" if missing else f"lacks some of these {what}"
    return PlanError(
        f"{place}: fallback: {fallback.name!r} would get the {what} of this model, and its own {key} {lacks}: "
        f"add them there, remove {key} there, or choose another fallback"
    )


def check_route(declared: Declaration, models: Sequence[ModelPlan]) -> None:
    """Raise :class:`UnknownNameError` if the route of the agent names a chat model that the agent does not have."""
    names = [model.name for model in models]
    for name in declared.route.names if declared.route is not None else ():
        if name not in names:
            raise UnknownNameError("chat model", name, names, place=f"the route of agent {declared.agent_id}")


_KEY_PLACES = ("api_key_env", "api_key_file")
_CONNECTION_KEYS = ("base_url", "base_urls", *_KEY_PLACES)
_SETUP_KEYS = (
    "connection",
    "model",
    "skill_names",
    "tools",
    "prompt",
    "strategy",
    "on_incomplete",
    "price",
    "fallback",
    "media",
    *_CONNECTION_KEYS,
)
_MAX_DEPTH = 5


def compile_plan(
    agent: Agent | type[Agent],
    *,
    job_scopes: Sequence[SkillScope] = (),
    config: SkillConfig | None = None,
    events: str = "pickle",
    outputs: str = "value",
    model: ModelSetup | None = None,
    shared: SharedResources | None = None,
    fields: Sequence[str] | None = None,
    _callers: tuple[str, ...] = (),
) -> AgentPlan:
    """Compile and check ``agent``. Nothing is contacted.

    Args:
        agent: An instance, or a class that needs no arguments.
        job_scopes: The sources of skills of the job.
        config: The options of the job.
        events: The form of event bytes, see :class:`AgentPlan`.
        outputs: The form of outputs, see :class:`AgentPlan`.
        model: Replaces the models that the agent declares, which keep their skills, tools and prompts.
        shared: The resources that all agents of the job share.
        fields: The names of the fields of all events. None: those of the agent's ``input_type``, or not known.

    Raises:
        SkillsError: A declaration is wrong.
    """
    agent = instantiate(agent)
    config = config or SkillConfig()
    shared = shared or SharedResources()
    declared = read_declaration(agent, shared)
    pool = declared_pool(declared)  # checks it
    prefixes: tuple[str, ...] = config.get(SkillOptions.FILES_ALLOWED)
    AllowedPrefixes(prefixes)  # checks them
    agents = {
        name: compile_plan(
            callee.agent, job_scopes=job_scopes, config=config, model=model, shared=shared, _callers=chain
        )
        for name, callee, chain in _callees(declared, _callers)
    }
    own = [tool.make() for tool in declared.own_tools.values()]
    for tool in (*own, *(pool.known_tools() if pool is not None else ())):
        for remark in tool.remarks:
            _log.warning("agent %s: tool %s: %s", declared.agent_id, tool.spec.name, remark)
    tools = [tool.spec for tool in own]
    tools += [
        agent_tool_spec(name, of.description, of.agent, sessions=bool(of.manner.get("sessions")))
        for name, of in declared.agents.items()
    ]
    for spec in tools:
        try:
            check_tool_name(spec.name)
        except ConfigError as error:
            raise PlanError(f"agent {declared.agent_id}: {error}") from error
        if spec.name in TOOL_NAMES:
            raise PlanError(
                f"agent {declared.agent_id}: a tool is named {spec.name!r} like one of the runtime's; rename it "
                "with @tool(name=…)"
            )
    scopes = (*job_scopes, *declared.skills)
    if model is not None and not declared.setups:
        place = {} if model.base_url is None else {"base_url": model.base_url}
        declared.setups["model"] = ResourceDescriptor(clazz=f"{model.provider}.setup", model=model.model, **place)
    if not declared.setups and type(agent).on_event is Agent.on_event:
        raise PlanError(
            f"agent {declared.agent_id} has no chat model: declare a @chat_model_setup, set "
            "model = 'provider:model', or override on_event"
        )
    for names in declared.skill_filters:
        _check_filter(names, f"agent {declared.agent_id}", bool(scopes))
    for name, connection in declared.connections.items():
        _provider(connection.clazz, "connection", f"connection {name!r} of agent {declared.agent_id}")
    models = [_model_plan(declared, name, setup, bool(scopes), config) for name, setup in declared.setups.items()]
    models = with_fallbacks(declared, models)
    check_route(declared, models)
    if model is not None:
        models = [replace(of, setup=_replaced(of.setup, model), fallback=()) for of in models]
    if not _callers:
        check_waits(declared.agent_id, agent, fields, config, shared)
    if fields is None:
        fields = fields_of_input(agent.input_type, is_tool=bool(_callers))
    used = (of.prompt for of in models if of.prompt is not None)
    check_prompts(declared.agent_id, declared.prompts, used, fields)
    if not _callers:
        check_content(declared.agent_id, agent, fields, config)
    plan = AgentPlan(
        agent_id=declared.agent_id,
        # The code of an agent that is a tool travels with its caller.
        agent=_reference(agent, declared) if not _callers else {"kind": "callee", "class": _import_path(type(agent))},
        session=declared.session,
        scopes=scopes,
        models=tuple(models),
        prompts={name: {"system": p.system, "user": p.user} for name, p in declared.prompts.items()},
        tools=tuple({"name": s.name, "description": s.description, "parameters": dict(s.parameters)} for s in tools),
        output_schema=_output_schema(declared),
        options=config.to_json(),
        events=events,
        outputs=outputs,
        agents=agents,
        sandbox=declared.uses_sandbox,
        skill_filters=tuple(declared.skill_filters),
        route=declared.route,
    )
    named = NamedAgent(plan, agent, declared)
    check_own_names(named)
    return replace(plan, approve=tuple(dict.fromkeys((*agent.approve_tools, *named.approved_tools()))))


def _callees(declared: Declaration, callers: tuple[str, ...]) -> Iterator[tuple[str, DeclaredAgent, tuple[str, ...]]]:
    """Yield the tool name of each agent that is a tool, the agent, and the ids of its callers.

    Raises :class:`PlanError` if agents call each other in a circle.
    """
    chain = (*callers, declared.agent_id)
    if declared.agents and len(chain) >= _MAX_DEPTH:
        raise PlanError(f"agents call each other {len(chain)} deep: {' -> '.join(chain)}; the maximum is {_MAX_DEPTH}")
    for name, callee in declared.agents.items():
        callee_id = agent_id(callee.agent)
        if callee_id in chain:
            raise PlanError(
                f"agent {declared.agent_id}: its tool {name!r} leads back to agent {callee_id} "
                f"({' -> '.join((*chain, callee_id))}): an agent cannot call itself"
            )
        yield name, callee, chain


def _replaced(declared: ModelSetup, model: ModelSetup) -> ModelSetup:
    """Return ``model`` with the declared settings that any provider accepts."""
    return replace(
        model,
        settings={**declared.settings, **model.settings},
        strategy=model.strategy or declared.strategy,
        on_incomplete=model.on_incomplete or declared.on_incomplete,
    )


def instantiate(agent: Agent | type[Agent]) -> Agent:
    """Return an agent instance for an instance or a class."""
    if isinstance(agent, Agent):
        return agent
    if is_class(agent) and issubclass(agent, Agent):
        try:
            return agent()
        except TypeError as error:
            raise PlanError(
                f"agent class {agent.__qualname__} cannot be made without arguments ({error}): pass an instance"
            ) from error
        except SkillsError:
            raise
        except Exception as error:  # the constructor is the user's
            raise PlanError(
                f"agent class {agent.__qualname__} cannot be made: {type(error).__name__}: {error}"
            ) from error
    raise not_an_agent(agent)


def _output_schema(declared: Declaration) -> Mapping[str, Any] | None:
    if declared.output_type is None or declared.output_type is str:
        return None
    try:
        return TypeAdapter(declared.output_type).json_schema()
    except Exception as error:  # raised by pydantic, and by the user's types
        of = declared.output_type
        reason = str(error).splitlines()[0].partition(". Set ")[0] if str(error) else type(error).__name__
        raise PlanError(
            f"agent {declared.agent_id}: output_type {of.__name__ if is_class(of) else of} has no JSON schema "
            f"({reason}): use a pydantic model"
        ) from error


def _model_plan(
    declared: Declaration, name: str, setup: ResourceDescriptor, has_sources: bool, config: SkillConfig
) -> ModelPlan:
    place = f"chat model {name!r} of agent {declared.agent_id}"
    arguments = dict(setup.arguments)
    provider, model = _provider(setup.clazz, "setup", place)
    model = arguments.pop("model", None) or model
    connection: Mapping[str, Any] = {}
    connection_name = arguments.pop("connection", None)
    for key, given in (("connection", connection_name), ("model", model), ("prompt", arguments.get("prompt"))):
        if given is not None and not isinstance(given, str):
            raise PlanError(f"{place}: {key} is of type {type(given).__name__}: give a name")
    if connection_name is not None:
        if connection_name not in declared.connections:
            raise UnknownNameError("connection", str(connection_name), declared.connections, place=place)
        descriptor = declared.connections[connection_name]
        connection_provider, _ = _provider(descriptor.clazz, "connection", f"connection {connection_name!r}")
        if connection_provider != provider:
            raise PlanError(
                f"{place} is a setup for {provider}, its connection {connection_name!r} is for {connection_provider}"
            )
        connection = descriptor.arguments
        for key in connection:
            if key not in _CONNECTION_KEYS:
                raise UnknownNameError(
                    "argument",
                    key,
                    _CONNECTION_KEYS,
                    place=f"connection {connection_name!r}",
                    advice=SETUP_WORDS.get(key, ""),
                )
    skill_names = name_list(arguments.pop("skill_names", None), f"{place}: skill_names")
    _check_filter(skill_names, place, has_sources)
    tools = name_list(arguments.pop("tools", None), f"{place}: tools")
    own_tools = [*declared.own_tools, *declared.agents]
    for tool in tools or ():
        if any(matches(name, (tool,)) for name in own_tools):
            continue
        # The tools of tool sets are known when these run.
        brings = any(toolset.can_bring(tool) for toolset in declared.toolsets)
        if not brings and not (has_sources and config.get(SkillOptions.PLUGINS_SERVERS)):
            raise UnknownNameError("tool", tool, own_tools, place=place)
    said = {key: arguments.pop(key) for key in MODEL_KEYS if key in arguments}
    if declared.run_code is not None:
        said.setdefault("run_code", declared.run_code)
    try:
        SkillSettings.of(config, said)
    except ConfigError as error:
        raise PlanError(f"{place}: {error}") from error
    # Fallbacks are resolved when all models are known.
    arguments.pop("fallback", None)
    prompt = arguments.pop("prompt", None)
    if prompt is not None and prompt not in declared.prompts:
        raise UnknownNameError("prompt", str(prompt), declared.prompts, place=place)
    if prompt is None:
        prompt = declared.default_prompt
    for key in arguments:
        if key not in _SETUP_KEYS and not is_setting(key, provider):
            known = [*_SETUP_KEYS, *MODEL_KEYS, *SETTINGS]
            advice = SETUP_WORDS.get(key, "")
            raise UnknownNameError("model setting", key, known, place=place, advice=advice, show_all=not advice)
    # The addresses of a setup replace those of its connection, and so does the place of its key.
    own = {key: arguments.pop(key) for key in ("base_url", "base_urls") if arguments.get(key)}
    places = own or connection
    own_keys = {name: given for name in _KEY_PLACES if (given := arguments.pop(name, None))}
    keys = own_keys or connection
    checked = ModelSetup(
        provider=provider,
        model=str(model or ""),
        base_url=places.get("base_url"),
        base_urls=places.get("base_urls") or (),
        api_key_env=keys.get("api_key_env"),
        api_key_file=keys.get("api_key_file"),
        strategy=arguments.pop("strategy", None),
        on_incomplete=arguments.pop("on_incomplete", None),
        price=arguments.pop("price", None),
        extra={"media": arguments.pop("media")} if arguments.get("media") is not None else {},
        settings=arguments,
    )
    try:
        check_setup(checked)
    except UnknownNameError:
        raise
    except SkillsError as error:
        raise PlanError(f"{place}: {error}") from error
    return ModelPlan(name=name, setup=checked, skill_names=skill_names, tools=tools, prompt=prompt, skill_settings=said)


def _check_filter(names: Sequence[str] | None, place: str, has_sources: bool) -> None:
    if names and not has_sources:
        raise PlanError(f"{place}: skill_names={list(names)}, but neither the job nor the agent has a skill source")


def _provider(clazz: str, kind: str, place: str) -> tuple[str, str | None]:
    """Return provider and model name of a descriptor's class: ``openai.setup`` or ``openai:gpt-…``."""
    if ":" in clazz and kind == "setup":
        provider, _, model = clazz.partition(":")
        return provider, model
    provider, dot, last = clazz.rpartition(".")
    if not dot or last != kind:
        raise PlanError(
            f"{place}: clazz {clazz!r} is not a chat model {kind}: {class_advice(clazz, kind, provider_names())}"
        )
    return provider, None


def _reference(agent: Agent, declared: Declaration) -> dict[str, Any]:
    """Return how a worker gets the agent: by import if that gives the same agent, else by value."""
    spec = getattr(agent, "spec", None)
    if isinstance(spec, Mapping):
        return {"kind": "spec", "class": _import_path(type(agent)), "spec": dict(spec)}
    cls = type(agent)
    if not vars(agent) and cls.__module__ != "__main__" and _importable(cls):
        return {"kind": "import", "class": _import_path(cls)}
    try:
        from flink_skills.agents.plan.by_value import dumps, obstacle
    except ImportError as error:
        raise PlanError(
            f"agent {declared.agent_id} is defined in the main script or has instance attributes, so it travels "
            "by value, and that needs cloudpickle: pip install 'flink-skills[flink]'"
        ) from error
    try:
        data = dumps(agent)
    except Exception as error:  # user objects raise anything when they are pickled
        raise PlanError(
            f"agent {declared.agent_id} cannot be sent to the workers ({type(error).__name__}: {error}; at "
            f"{obstacle(agent) or 'the agent itself'}): keep clients and locks out of its attributes, make them where "
            "they are used, or move the class into a module and ship it (env.add_python_file)"
        ) from error
    return {
        "kind": "pickle",
        "class": _import_path(cls),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "data": base64.b64encode(data).decode("ascii"),
    }


def _import_path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _importable(cls: type) -> bool:
    target: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        target = getattr(target, part, None)
    return target is cls
