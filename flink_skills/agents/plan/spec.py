"""The keys of an agent's YAML file as pydantic models, from which its schema and its checks are derived."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from flink_skills.agents.declare.resource import SharedResources
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.documents.document import Document, Path, Problem
from flink_skills.errors import SkillsError, UnknownNameError, near_misses
from flink_skills.manager import SkillScope
from flink_skills.models.registry import check_setup, class_advice, provider_names
from flink_skills.models.setup import SETTINGS, ModelSetup
from flink_skills.options import SkillConfig
from flink_skills.other_frameworks import SETUP_WORDS

Text = Annotated[StrictStr, Field(min_length=1)]


class StrictPart(BaseModel):
    """A mapping that accepts only the declared keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourcePins(StrictPart):
    """A source of skills with pins."""

    path: Text | None = Field(None, description="A folder or archive, for `paths`.")
    resource: Text | None = Field(None, description="A folder or zip inside the job's jars, for `resources`.")
    url: Text | None = Field(None, description="The URL of an archive, for `urls`.")
    sha256: Text | None = Field(None, description="SHA-256 of the archive's bytes, 64 hexadecimal digits.")
    format: Literal["skill", "heading"] | None = Field(None, description="How its skills are written.")
    label: Text | None = Field(None, description="For an MCP server: its name in the job.")
    prefetch: StrictBool | None = Field(None, description="For an MCP server: whether all files are fetched at open.")
    scripts: list[Text] | None = Field(None, description="For an MCP server: skills whose commands are approved.")
    dynamic: StrictBool | None = Field(None, description="For an MCP server: accept skills without digests.")
    skills: list[Text] | None = Field(None, description="For an MCP server: URIs of skills that it may not list.")
    timeout: StrictInt | StrictFloat | None = Field(None, description="For an MCP server: seconds of a request.")
    server: dict[Text, Any] | None = Field(None, description="For an MCP server: more keys of its connection.")


class SkillsSection(StrictPart):
    """The sources of skills."""

    paths: list[Text | SourcePins] = Field([], description="Folders or archives of skills on the TaskManagers.")
    resources: list[Text | SourcePins] = Field([], description="Folders or zips inside the job's jars.")
    urls: list[Text | SourcePins] = Field([], description="URLs of skills (https, s3, file, mcp+https …).")


class AgentSkillsSection(SkillsSection):
    """The sources of skills of an agent, and a filter."""

    skill_names: list[Text] | None = Field(None, description="As `skill_names` of the agent; both narrow.")


class ConnectionSpec(StrictPart):
    """A connection to a provider of chat models."""

    clazz: Text = Field(description="The provider's connection, such as `openai.connection`.")
    base_url: Text | None = Field(None, description="Where the provider's API is.")
    base_urls: list[Text] | None = Field(
        None, description="Where equal servers have the API. The requests of a key go to the same one."
    )
    api_key_env: Text | None = Field(None, description="Name of the TaskManagers' environment variable with the key.")
    api_key_file: Text | None = Field(
        None, description="Path of a file of the TaskManagers with the key. It is read again when it changes."
    )


class SetupSpec(BaseModel):
    """A chat model with its skills and tools. Other keys are settings of the model."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    clazz: Text = Field(description="The provider's setup, such as `openai.setup`, or `PROVIDER:MODEL`.")
    connection: Text | None = Field(None, description="One of `chat_model_connections`.")
    model: Text | None = Field(None, description="The provider's name of the model.")
    base_url: Text | None = Field(None, description="Where the provider's API is.")
    base_urls: list[Text] | None = Field(
        None, description="Where equal servers have the API. The requests of a key go to the same one."
    )
    api_key_env: Text | None = Field(None, description="Name of the TaskManagers' environment variable with the key.")
    api_key_file: Text | None = Field(
        None, description="Path of a file of the TaskManagers with the key. It is read again when it changes."
    )
    strategy: Literal["auto", "native", "json"] | None = Field(
        None, description="How the model acts: native tool calls, or constrained JSON."
    )
    on_incomplete: Literal["fail", "retry", "emit"] | None = Field(
        None, description="As the option `skills.model.on-incomplete`."
    )
    price: StrictFloat | StrictInt | dict[Text, StrictFloat | StrictInt] | None = Field(
        None,
        description="USD per million tokens, such as `{input: 1.25, output: 10.0}`. `cache_read` and `cache_write` "
        "are the prices of tokens of the provider's cache, and default to that of `input`.",
    )
    fallback: list[Text] | None = Field(
        None,
        description="The chat models that answer if this one does not, in their order: names of chat models, or "
        "`PROVIDER:MODEL`.",
    )
    media: list[Literal["image", "pdf", "audio"]] | None = Field(
        None, description="The content that the model accepts next to text; default: that of its provider."
    )
    skill_names: list[Text] | None = Field(None, description="The only skills that the model may see.")
    tools: list[Text] | None = Field(None, description="The only tools of the agent that the model has.")
    prompt: Text | None = Field(None, description="One of `prompts`.")
    skill_tools: Text | list[Text] | None = Field(None, description="As the option `skills.tools`.")
    skill_lifetime: Text | None = Field(None, description="As the option `skills.load.lifetime`.")
    skill_content: Text | None = Field(None, description="As the option `skills.load.content`.")
    run_code: StrictBool | None = Field(None, description="As the option `skills.code.enabled`.")
    max_loaded_skills: StrictInt | None = Field(None, description="As the option `skills.max-loaded`.")
    skill_guidance: StrictStr | None = Field(None, description="As the option `skills.prompt.guidance`.")


class PromptSpec(StrictPart):
    """The parts of a prompt."""

    system: StrictStr = Field("", description="The system text.")
    user: StrictStr = Field("", description="The text around the event; `{event}` is the event.")


FieldType = Literal["str", "int", "float", "bool", "list", "dict", "any"]


class RouteSpec(StrictPart):
    """The choice of the chat model by a field of the event."""

    field: Text = Field(description="A column of the event, or a path to a nested field, such as `customer.tier`.")
    models: dict[StrictStr | StrictInt | StrictBool, Text] = Field(
        min_length=1, description="The chat model by value of the field."
    )
    default: Text = Field(description="The chat model for other values, and for events without the field.")


class ToolEntry(StrictPart):
    """A tool with a function that runs its calls."""

    tool: Text = Field(description="`module:function`, or the name of a registered tool.")
    around: Text = Field(description="`module:function`: runs each call, as the hook `around_tool` does for all tools.")


class ApproveSpec(StrictPart):
    """Calls of tools that are made only after an approval."""

    tools: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="The tools, by name or pattern (`Write`, `mcp_*`), in addition to the option "
        "`skills.tools.approve` and to tools that declare `approve`.",
    )
    by: Text = Field(
        description="`answers`: a person decides, see [Ask people](job-files.md#ask-people). Or `module:function`: it "
        "receives an `ApprovalRequest` and returns true, false, or a string with the reason for a refusal."
    )
    question: Text | None = Field(None, description="With `by: answers`: the question for people.")
    timeout: Text | StrictInt | StrictFloat | None = Field(
        None, description="With `by: answers`: the time to decide, such as `2 d`. Default: no limit."
    )
    on_timeout: Literal["refuse", "approve", "fail"] | None = Field(
        None, description="With `by: answers`: `refuse` (default) or `approve` the call, or `fail` the turn."
    )


class AgentParts(StrictPart):
    """The declarations of an agent without code."""

    instructions: StrictStr | None = Field(None, description="The instructions of all models: a system prompt.")
    session: Literal["event", "key"] | None = Field(
        None,
        description="`event`: each event is a separate conversation. `key`: the events of a key continue one "
        "conversation.",
    )
    session_selector: Text | None = Field(
        None, description="With `session: key`: the column whose value selects one of several conversations of a key."
    )
    model: Text | None = Field(None, description="`PROVIDER:MODEL` or `offline`, for one model without settings.")
    route: RouteSpec | None = Field(
        None, description="The chat model of each event, by a field of the event. Default: the first chat model."
    )
    input_type: Text | dict[Text, FieldType] | None = Field(
        None,
        description="What the agent is asked as a tool of another one: a mapping of field to type, or `module:Class`; "
        "default: a string.",
    )
    output_type: Text | dict[Text, FieldType] | None = Field(
        None, description="What the answer must be: a mapping of field to type, or `module:Class`; default: text."
    )
    run_code: StrictBool | None = Field(None, description="As the option `skills.code.enabled`.")
    skill_names: list[Text] | None = Field(
        None, description="The only skills of the job and the agent that its models may see."
    )
    visible_skills: Text | None = Field(
        None,
        description="The column whose value lists the only skills that the models may see for the event: an array of "
        "names, or a text with names separated by commas. NULL: all that they have.",
    )
    files: Text | None = Field(None, description="The column that has the files of the event; default: `files`.")
    content: Text | Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="The column, or the columns, with images, PDF documents and audio for the models: bytes, base64, "
        "an address under `skills.files.allowed`, an artifact, or an array of these.",
    )
    state: dict[Text, Any] | None = Field(
        None, description="JSON schema of the key's state, an object whose properties have defaults."
    )
    approve: ApproveSpec | None = Field(None, description="Calls of tools that are made only after an approval.")
    skills: AgentSkillsSection | None = Field(
        None, description="Skills of this agent, in addition to those of the job."
    )
    chat_model_connections: dict[Text, ConnectionSpec] | None = Field(None, description="Connections by name.")
    chat_model_setups: dict[Text, SetupSpec] | None = Field(None, description="Chat models by name.")
    prompts: dict[Text, StrictStr | PromptSpec] | None = Field(None, description="Prompts by name.")
    tools: list[Text | ToolEntry] | None = Field(None, description="Tools of the models, each `module:function`.")
    mcp_servers: dict[Text, dict[Text, Any] | Text] | None = Field(
        None,
        description="MCP servers by name, each with `url` or `command`, whose tools the models have. `file` names a "
        "`.mcp.json`, and `mcpServers` is the object of such a file.",
    )
    tool_pool: list[Text | ToolEntry] | None = Field(
        None, description="Tools that a model gets with a skill that names them."
    )


class AgentSpec(AgentParts):
    """An agent without code: the keys of an agent's YAML file."""

    name: Text | None = Field(None, description="The agent's id, which its state belongs to; default: the job's name.")


_SETUPS, _CONNECTIONS = "chat_model_setups", "chat_model_connections"
_OWN_NAMES: Mapping[str, str] = {_SETUPS: _SETUPS, _CONNECTIONS: _CONNECTIONS}
# The key that contains an unknown name, by kind.
_KEYS = {
    "tool": "tools",
    "prompt": "prompt",
    "connection": "connection",
    "strategy": "strategy",
    "on_incomplete": "on_incomplete",
    "model provider": "clazz",
    "chat model": "fallback",
}
# A setup of it needs nothing else, so that the other keys can be looked at.
_PLAIN = "offline"


def setup_problems(
    spec: Mapping[str, Any],
    document: Document,
    at: Path,
    *,
    has_sources: bool,
    config: SkillConfig,
    known: Iterable[Path] = (),
    shared: SharedResources | None = None,
    names: Mapping[str, str] = _OWN_NAMES,
) -> list[Problem]:
    """Return the problems in setups and connections of ``spec``.

    Args:
        spec: The agent as its file declares it.
        document: The file.
        at: The path of ``spec`` in the file.
        has_sources: Whether the job has skills beside those of the agent.
        config: The options of the job.
        known: Paths of values that are reported already. These values are not checked.
        shared: The resources that all agents of the job share.
        names: The names of ``chat_model_setups`` and ``chat_model_connections`` in the file.
    """
    setups, connections = spec.get(_SETUPS), spec.get(_CONNECTIONS) or {}
    if not isinstance(setups, Mapping) or not isinstance(connections, Mapping):
        return []
    broken = {path[: len(at) + 2] for path in known} | {path for path in known if len(path) < len(at) + 2}
    if (*at, _CONNECTIONS) in broken or (*at, _SETUPS) in broken:
        return []
    # Whether there is a source for the agent's skill_names is a question about the job, not about a setup. The route is
    # about all setups.
    left_out = ("model", "route", "skill_names", _SETUPS)
    rest = {key: value for key, value in spec.items() if key not in left_out and (*at, key) not in broken}
    rest = {key: value for key, value in rest.items() if not any(path[: len(at) + 1] == (*at, key) for path in broken)}
    found: dict[Path, str] = {}
    for name, connection in connections.items():
        if isinstance(connection, Mapping) and (message := _class_problem(connection, "connection")):
            found[_CONNECTIONS, name, "clazz"] = message
    usable = {
        name: value
        for name, value in connections.items()
        if (_CONNECTIONS, name, "clazz") not in found and (*at, _CONNECTIONS, name) not in broken
    }
    for name, setup in setups.items():
        if isinstance(setup, Mapping) and (*at, _SETUPS, name) not in broken:
            given, unknown = _fallbacks(str(name), setup, {*setups, *(shared.setups if shared is not None else ())})
            found |= unknown
            if given.get("connection") in set(connections) - set(usable):
                del given["connection"]
            whole = {**rest, "name": rest.get("name", "agent"), _CONNECTIONS: {n: dict(c) for n, c in usable.items()}}
            found |= _problems_of(
                whole, str(name), given, has_sources=has_sources, config=config, shared=shared or SharedResources()
            )
    return [
        document.problem((*at, names[str(path[0])], *path[1:]), message, at_key=path[-1] != "clazz")
        for path, message in found.items()
    ]


def route_problems(
    spec: Mapping[str, Any], document: Document, at: Path, shared: SharedResources, known: Iterable[Path] = ()
) -> list[Problem]:
    """Return a problem for each chat model that the route of ``spec`` names and that is unknown.

    The arguments are those of :func:`setup_problems`.
    """
    route, setups = spec.get("route"), spec.get(_SETUPS) or {}
    where = (*at, "route")
    if not isinstance(route, Mapping) or not isinstance(setups, Mapping):
        return []
    if any(path[: len(where)] == where or where[: len(path)] == path for path in known):
        return []
    names = [*map(str, setups), *shared.setups]
    if spec.get("model") and spec["model"] not in shared.setups:
        names.append("model")
    models = route.get("models")
    named: dict[Path, Any] = {("default",): route.get("default")}
    for value, name in models.items() if isinstance(models, Mapping) else ():
        named["models", value] = name
    return [
        document.problem((*where, *path), str(UnknownNameError("chat model", str(name), names)))
        for path, name in named.items()
        if name is not None and name not in names
    ]


def _fallbacks(name: str, setup: Mapping[str, Any], models: Collection[str]) -> tuple[dict[str, Any], dict[Path, str]]:
    """Return ``setup`` without the fallbacks that are other models, and the problems of unknown names.

    Each setup is compiled without the others, so these names are checked here.
    """
    rest, found = dict(setup), dict[Path, str]()
    fallback = rest.get("fallback")
    if not isinstance(fallback, list) or len(set(map(str, fallback))) < len(fallback):
        return rest, found
    rest["fallback"] = []
    for at, other in enumerate(fallback):
        if other not in models and ":" not in str(other) and other not in provider_names():
            found[_SETUPS, name, "fallback", at] = str(UnknownNameError("chat model", str(other), models))
        elif other not in models or other == name:
            rest["fallback"].append(other)
    return rest, found


def _problems_of(
    spec: dict[str, Any],
    name: str,
    setup: dict[str, Any],
    *,
    has_sources: bool,
    config: SkillConfig,
    shared: SharedResources,
) -> dict[Path, str]:
    """The problems of one setup, by their paths in the spec."""
    found: dict[Path, str] = {}
    if message := _class_problem(setup, "setup"):
        found[_SETUPS, name, "clazz"] = message
        _make_plain(setup)
    scopes = [SkillScope("job", paths=["skills"])] if has_sources else []
    # The shared setups are looked at by themselves.
    only_others = replace(shared, setups={})
    # Each round takes one key out, or is the last one.
    while True:
        try:
            agent = DeclarativeAgent.from_spec({**spec, _SETUPS: {name: setup}})
            compile_plan(agent, job_scopes=scopes, config=config, shared=only_others)
        except SkillsError as error:
            path = _path_of(error, name, setup, spec[_CONNECTIONS])
            found[path] = _message(error, path)
            if path == (_SETUPS, name):
                return found
            if path[0] == _CONNECTIONS:
                del spec[_CONNECTIONS][path[1]][path[2]]
            elif path[-1] == "clazz":
                _make_plain(setup)
            else:
                del setup[str(path[-1])]
        else:
            return found


def _make_plain(setup: dict[str, Any]) -> None:
    setup["clazz"] = f"{_PLAIN}.setup"
    # A connection is one of a provider, which is not known.
    setup.pop("connection", None)


def _class_problem(arguments: Mapping[str, Any], kind: str) -> str | None:
    """Return the reason if ``clazz`` names neither a setup nor a connection. The provider is not checked."""
    clazz = arguments.get("clazz")
    if isinstance(clazz, str) and kind == "connection" and clazz.endswith(f".{kind}"):
        provider = clazz.removesuffix(f".{kind}")
        try:
            check_setup(ModelSetup(provider=provider, model="any", base_url="http://localhost"))
        except UnknownNameError as error:
            return str(error) if error.kind == "model provider" else None
        except SkillsError:
            return None
        return None
    if not isinstance(clazz, str) or clazz.endswith(f".{kind}") or (kind == "setup" and ":" in clazz):
        return None
    names = [f"{provider}.{kind}" for provider in provider_names()]
    near = near_misses(clazz, names) or [f"{p}.{kind}" for p in near_misses(clazz.partition(".")[0], provider_names())]
    advice = class_advice(clazz, kind, provider_names())
    meant = f"did you mean {near[0]!r}?" if near else advice if advice.startswith("did you mean") else ""
    hint = f" ({meant})" if meant else ""
    more = ", or PROVIDER:MODEL" if kind == "setup" else ""
    return f"unknown chat model {kind} {clazz!r}{hint}; expected one of: {', '.join(names)}{more}"


def _path_of(error: SkillsError, name: str, setup: Mapping[str, Any], connections: Mapping[str, Any]) -> Path:
    """Return the position of an error: a setup key, or the setup itself."""
    message = str(error)
    connection = setup.get("connection")
    if isinstance(error, UnknownNameError):
        key = error.name if error.kind == "model setting" else _KEYS.get(error.kind, "")
        if error.kind == "argument" and error.name in connections.get(str(connection), {}):
            return (_CONNECTIONS, str(connection), error.name)
        return (_SETUPS, name, key) if key in setup else (_SETUPS, name)
    said = message.removeprefix("chat model ").partition(": ")[2] or message
    for key in sorted(setup, key=len, reverse=True):
        if re.search(rf"\b{re.escape(str(key))}\b", said.partition(" needs ")[0]):
            return (_SETUPS, name, str(key))
    return (_SETUPS, name)


def _message(error: SkillsError, path: Path) -> str:
    if not isinstance(error, UnknownNameError) or error.kind != "model setting":
        return str(error)
    # The name can be meant as a model setting or as a setup key.
    keys = [*SetupSpec.model_fields, *SETTINGS]
    near = near_misses(error.name, keys)
    hint = SETUP_WORDS.get(error.name) or (f"did you mean {near[0]!r}?" if near else "nothing has a similar name")
    return f"unknown key {error.name!r} in chat model {path[1]!r}: {hint} (there are: {', '.join(keys)})"
