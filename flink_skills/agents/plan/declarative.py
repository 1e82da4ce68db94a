"""Agents without code: the same declarations as a class has, in YAML."""

from __future__ import annotations

import copy
import keyword
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_serializer, model_validator

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.context import AgentContext
from flink_skills.agents.declare.declaration import Declaration, DeclaredAgent, mcp_tool_set, pool_item
from flink_skills.agents.declare.resource import ResourceDescriptor
from flink_skills.agents.declare.route import Route
from flink_skills.agents.plan.compilation import instantiate
from flink_skills.agents.state.event import field_of
from flink_skills.errors import ConfigError, PlanError, TurnError, UnknownNameError, near_misses
from flink_skills.options.option import parse_duration
from flink_skills.prompts import Prompt, check_instructions
from flink_skills.tools.base import Tool
from flink_skills.tools.calling import ApprovalRequest, Later, later
from flink_skills.tools.dynamic.tool_pool import PoolItem, get_tool
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.toolset_base import BaseToolSet

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TAKEN = frozenset(dir(BaseModel))


def state_model(schema: Mapping[str, Any]) -> type[BaseModel]:
    """Return a model of the state that the JSON schema ``schema`` describes.

    A state is checked when it is read, and when it is kept.

    Args:
        schema: An object with ``properties``. A new state has the ``default`` of each property.

    Raises:
        ConfigError: ``schema`` is not a JSON schema of an object, a property cannot be a field, or a new state does not
            fit. The message starts with ``state``.

    >>> state_model({"type": "object", "properties": {"seen": {"type": "integer", "default": 0}}})().seen
    0
    """
    try:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
    except ImportError as error:
        raise ConfigError("state: JSON schemas need a package: pip install jsonschema") from error
    # References to other documents are not fetched.
    kind = validator_for({"$schema": _DRAFT})
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        place = ".".join(("state", *map(str, error.absolute_path)))
        raise ConfigError(f"{place}: is not a JSON schema: {error.message}") from None
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise ConfigError("state: is not the schema of an object; write 'type: object' and 'properties'")
    if _has_reference(schema):
        raise ConfigError("state: '$ref' and '$dynamicRef' are not followed; write the schema in place of each")
    validator = kind(schema)

    def check(value: Any) -> None:
        problem = next(iter(sorted(validator.iter_errors(value), key=lambda found: list(map(str, found.path)))), None)
        if problem is not None:
            place = ".".join(("state", *map(str, problem.absolute_path)))
            raise ValueError(f"{place}: {problem.message:.300}")

    class Declared(BaseModel):
        model_config = ConfigDict(extra="allow", protected_namespaces=())

        @model_validator(mode="after")
        def _fits(self) -> Declared:
            check(dict(self))
            return self

        @model_serializer(mode="wrap")
        def _kept(self, dump: Any) -> Any:
            kept = dump(self)
            check(kept)
            return kept

    fields: dict[str, Any] = {}
    for name, of in schema["properties"].items():
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name) or name in _TAKEN:
            raise ConfigError(f"state.properties.{name}: cannot be a field; use a name of letters, such as 'seen'")
        default = of.get("default") if isinstance(of, Mapping) else None
        fields[name] = (Any, Field(default_factory=lambda value=default: copy.deepcopy(value)))
    model: type[BaseModel] = create_model("State", __base__=Declared, **fields)
    try:
        model()
    except ValidationError as error:
        said = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
        raise ConfigError(
            f"state: a new state does not fit its schema ({said}); give each property a default that fits"
        ) from None
    return model


def _has_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or "$dynamicRef" in value or any(map(_has_reference, value.values()))
    return isinstance(value, list) and any(map(_has_reference, value))


_KEYS = (
    "name",
    "instructions",
    "session",
    "session_selector",
    "model",
    "route",
    "input_type",
    "output_type",
    "run_code",
    "skill_names",
    "visible_skills",
    "files",
    "content",
    "state",
    "approve",
    "skills",
    "chat_model_connections",
    "chat_model_setups",
    "prompts",
    "tools",
    "tool_pool",
    "mcp_servers",
    # For an agent of a job file: each tool with the agent that it calls.
    "agent_tools",
)
_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict, "any": Any}


class DeclarativeAgent(Agent):
    """An agent made of data. ``spec`` is what the YAML file says; it travels in the plan as it is."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        for key in spec:
            if key not in _KEYS:
                raise UnknownNameError("key", str(key), _KEYS)
        self.spec = dict(spec)
        self.name = _text(spec, "name")
        self.instructions = _text(spec, "instructions")
        check_instructions(self.instructions, "instructions")
        self.session = _text(spec, "session") or "event"
        self.session_selector = _text(spec, "session_selector") or None
        self.model = _text(spec, "model") or None
        self.route = None if spec.get("route") is None else Route.parse(spec["route"])
        self.run_code = spec.get("run_code")
        if self.run_code is not None and not isinstance(self.run_code, bool):
            raise ConfigError(f"run_code: is {self.run_code!r}; write true or false")
        self.skill_names = spec.get("skill_names")
        self._visible_column = _text(spec, "visible_skills")
        self.files_field = _text(spec, "files") or Agent.files_field
        content = spec.get("content") or ()
        self.content_fields = (content,) if isinstance(content, str) else tuple(_list(spec, "content", "columns"))
        self.input_type = _answer_type(spec.get("input_type"), f"{self.name or 'Agent'}Input", "input_type")
        self.output_type = _answer_type(spec.get("output_type"), f"{self.name or 'Agent'}Output", "output_type")
        state = spec.get("state")
        self.state_type = None if state is None else state_model(_mapping(state, "state"))
        approve = _mapping(spec.get("approve") or {}, "approve")
        self.approve_tools = approve.get("tools") or ()
        self._approver = _approver(approve) if approve else None
        self._is_complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        if type(self) is DeclarativeAgent and getattr(self, "_is_complete", False):
            raise ConfigError(
                f"agent {self.name}: {name} cannot be set, because workers make the agent from its YAML: write it there"
            )
        super().__setattr__(name, value)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> DeclarativeAgent:
        """The agent of a spec. Raises :class:`SkillsError` for a spec that declares something impossible."""
        agent = cls(spec)
        agent.declare(Declaration(agent.name, agent.session, None, None))
        return agent

    @property
    def columns(self) -> dict[tuple[str | int, ...], str]:
        """The columns of the event that the agent names, by the path in its spec that names them."""
        named: dict[tuple[str | int, ...], Any] = {
            ("session_selector",): self.session_selector,
            ("visible_skills",): self._visible_column,
            ("files",): _text(self.spec, "files"),
            ("route", "field"): None if self.route is None else self.route.field,
        }
        is_list = isinstance(self.spec.get("content"), list)
        named |= {("content", n) if is_list else ("content",): of for n, of in enumerate(self.content_fields)}
        return {path: column for path, column in named.items() if column}

    @property
    def asks_people(self) -> bool:
        """True if people approve calls."""
        return isinstance(self._approver, _People)

    @property
    def approvals(self) -> dict[str, Any]:
        """The section ``approve`` as the file has it."""
        return dict(self.spec.get("approve") or {})

    def visible_skills(self, event: Any, ctx: AgentContext) -> list[str] | None:
        """Return the skills that the column names."""
        if not self._visible_column:
            return None
        try:
            value = field_of(event, self._visible_column)
        except ConfigError as error:
            raise TurnError(f"visible_skills: {error}") from None
        names = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
        if names is not None and not (isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)):
            raise TurnError(
                f"visible_skills: column {self._visible_column!r} is {type(value).__name__}; make it an array of "
                "strings, or a string with names separated by commas"
            )
        return None if names is None else list(names)

    def approve(self, request: ApprovalRequest) -> Any:
        """Return what the function of ``approve.by`` returns, or the question for people."""
        return super().approve(request) if self._approver is None else self._approver(request)

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        answer = await ctx.chat(event)
        # The type was made from data, so nobody downstream could import it: emit plain fields.
        return answer.model_dump(mode="json") if isinstance(answer, BaseModel) else answer

    def declare(self, found: Declaration) -> None:
        """Add the spec's declarations."""
        skills = self.spec.get("skills")
        if skills is not None:
            found.add_skills({str(key): value for key, value in _mapping(skills, "skills").items()}, "skills")
        for name, value in _section(self.spec, "chat_model_connections"):
            found.connections[name] = descriptor_of(value, f"chat_model_connections.{name}")
        for name, value in _section(self.spec, "chat_model_setups"):
            found.setups[name] = descriptor_of(value, f"chat_model_setups.{name}")
        for name, value in _section(self.spec, "prompts"):
            found.prompts[name] = prompt_of(value, f"prompts.{name}")
        for place, item in _tools(self.spec, "tools"):
            found.add_tool(item, place)
        for name, value in _section(self.spec, "mcp_servers"):
            place = f"mcp_servers.{name}"
            found.add_mcp_server(mcp_tool_set(name, _mapping(value, place), {}, place), place)
        found.pool += [item for _, item in _tools(self.spec, "tool_pool")]
        for name, value in _section(self.spec, "agent_tools"):
            found.add_agent(name, _callee(_mapping(value, f"agent_tools.{name}"), name), f"agent_tools.{name}")


@dataclass(frozen=True)
class _People:
    """The approver of ``approve.by: answers``."""

    question: str | None
    timeout: float | None
    on_timeout: Literal["refuse", "approve", "fail"]

    def __call__(self, request: ApprovalRequest) -> Later:
        question = f"Call {request.tool}?" if self.question is None else self.question
        return later(question, timeout=self.timeout, on_timeout=self.on_timeout)


def _approver(approve: Mapping[str, Any]) -> Callable[[ApprovalRequest], Any]:
    """Return the approver of a section ``approve``."""
    by = approve["by"]
    if by != "answers":
        for key in ("question", "timeout", "on_timeout"):
            if approve.get(key) is not None:
                raise ConfigError(f"approve.{key}: only people have it, and by is {by!r}: write 'by: answers'")
        found = _load(by, "approve.by")
        if not callable(found):
            raise ConfigError(f"approve.by: {by!r} is not a function")
        return cast("Callable[[ApprovalRequest], Any]", found)
    timeout = approve.get("timeout")
    if timeout is not None:
        try:
            timeout = parse_duration(timeout)
        except ValueError as error:
            raise ConfigError(f"approve.timeout: is {approve['timeout']!r}: {error}") from None
        if timeout == 0:
            raise ConfigError(f"approve.timeout: is {approve['timeout']!r}: write a time above 0, such as '2 d'")
    return _People(approve.get("question"), timeout, approve.get("on_timeout") or "refuse")


def _callee(value: Mapping[str, Any], tool: str) -> DeclaredAgent:
    """Return the agent that a tool calls: ``spec`` or ``class`` is the agent, the rest is how it is called."""
    said = dict(value)
    description = said.pop("description", None) or ""
    spec, path = said.pop("spec", None), said.pop("class", None)
    agent = DeclarativeAgent.from_spec(spec) if path is None else instantiate(_load(path, f"agent_tools.{tool}"))
    return DeclaredAgent(str(description), agent, said)


def _tools(spec: Mapping[str, Any], key: str) -> Iterator[tuple[str, PoolItem]]:
    """Yield the place and the item for each entry in ``tools`` or ``tool_pool``."""
    entries = spec.get(key) or []
    if not isinstance(entries, list):
        raise ConfigError(f"{key}: is {entries!r}; write a list of 'module:name' and of names of registered tools")
    for entry in entries:
        named = entry if isinstance(entry, Mapping) else {"tool": entry}
        if not named.get("tool") or set(named) - {"tool", "around"}:
            raise ConfigError(f"{key}: is {dict(named)!r}; write {{tool: 'module:name', around: 'module:name'}}")
        path = str(named["tool"])
        place = f"{key}: {path!r}"
        item = pool_item(_load(path, key) if ":" in path else path, place)
        if named.get("around"):
            item = _with_around(item, _load(str(named["around"]), f"{place}: around"), place)
        yield place, item


def _with_around(item: PoolItem, around: Any, place: str) -> Tool:
    if not callable(around):
        raise ConfigError(f"{place}: around is {around!r}; name a function (call, ctx)")
    if isinstance(item, BaseToolSet):
        raise ConfigError(f"{place}: around belongs to one tool, and this is a tool set; name its tools")
    found: Any = get_tool(item) if isinstance(item, str) else item
    if found is None:
        raise ConfigError(f"{place}: no tool is registered as {item!r}; write 'module:name', or register it")
    tool = copy.copy(found) if isinstance(found, Tool) else FunctionTool(found)
    tool.around = around
    return tool


def _list(spec: Mapping[str, Any], key: str, of: str) -> list[str]:
    value = spec.get(key) or []
    if not isinstance(value, list):
        raise ConfigError(f"{key}: is {value!r}; write a list of {of}")
    return [str(item) for item in value]


def _text(spec: Mapping[str, Any], key: str) -> str:
    value = spec.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{key}: expected a string, got {value!r}")
    return value


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: is {value!r}; write a mapping")
    return value


def _section(spec: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    value = spec.get(key)
    return [(str(name), item) for name, item in _mapping(value, key).items()] if value is not None else []


def descriptor_of(value: Any, place: str) -> ResourceDescriptor:
    """Return the descriptor that a mapping with ``clazz`` declares. Raises :class:`ConfigError` that starts with
    ``place``."""
    arguments = dict(_mapping(value, place))
    clazz = arguments.pop("clazz", None)
    if not isinstance(clazz, str):
        raise ConfigError(f"{place}: has no clazz; write one such as 'clazz: openai.setup' or 'clazz: openai:MODEL'")
    return ResourceDescriptor(clazz=clazz, **{str(k): v for k, v in arguments.items()})


def prompt_of(value: Any, place: str) -> Prompt:
    """Return the prompt of a text, or of a mapping with ``system`` and ``user``. Raises :class:`ConfigError`."""
    if isinstance(value, str):
        check_instructions(str(value), place)
        return value if isinstance(value, Prompt) else Prompt(system=value)
    parts = _mapping(value, place)
    for key in parts:
        if key not in ("system", "user"):
            raise UnknownNameError("key", str(key), ("system", "user"), place=place)
    prompt = Prompt(system=_text(parts, "system"), user=_text(parts, "user"))
    check_instructions(prompt.system, f"{place}.system")
    return prompt


def _answer_type(value: Any, model_name: str, key: str) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        if value not in _TYPES and ":" not in value and near_misses(value, _TYPES):
            raise ConfigError(f"{key}: {UnknownNameError('type', value, _TYPES)}")
        return _TYPES[value] if value in _TYPES else _load(value, key)
    fields: dict[str, Any] = {}
    for name, of in _mapping(value, key).items():
        if of not in _TYPES:
            raise UnknownNameError("type", str(of), _TYPES, place=f"{key}.{name}")
        fields[str(name)] = (_TYPES[of], ...)
    model: type[BaseModel] = create_model(model_name, **fields)
    return model


def _load(path: str, place: str) -> Any:
    from flink_skills.agents.plan.plan import import_object, unknown_in_module

    if ":" not in path:
        module, _, name = path.rpartition(".")
        meant = f": did you mean '{module}:{name}'?" if module else ""
        raise ConfigError(f"{place}: {path!r} is not of the form 'module:name'{meant}")
    try:
        return import_object(path)
    except ImportError as error:
        raise PlanError(f"{place}: cannot import {path!r} ({error}): install or ship its module") from error
    except AttributeError as error:
        module, _, name = path.partition(":")
        why = unknown_in_module(module, name) or error
        raise PlanError(f"{place}: cannot import {path!r}: {why}") from error
    except (Exception, SystemExit) as error:  # importing a user's module raises anything
        raise PlanError(f"{place}: importing {path!r} failed: {type(error).__name__}: {error}") from error
