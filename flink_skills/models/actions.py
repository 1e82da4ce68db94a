"""Actions that a model may take next, and their JSON schema."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flink_skills.manager.menu import parse_menu
from flink_skills.models.messages import AssistantMessage, Message, ModelRequest, ToolMessage
from flink_skills.models.schemas import object_schema
from flink_skills.tools.base import ToolSpec, says_repeated
from flink_skills.tools.commands.policy import NO_SHELL
from flink_skills.tools.result_text import says_failure, says_nothing
from flink_skills.tools.skills.skill_prompts import says_unloaded

ANSWER = "answer"
THOUGHT = "thought"

_MENU_TAG = "<available_skills>"
_LOAD = "load_skill"
_UNLOAD = "unload_skill"
_RESOURCE = "load_skill_resource"
_SHELL = "execute_shell_command"
# Tools that mean nothing before a skill is loaded. Other tools are the agent's own and always on offer.
_NEED_SKILL = frozenset({_UNLOAD, _RESOURCE, _SHELL})
# What a small model leaves alone when it is not offered. With it, it invents working directories (seen with
# a 1.5B model in 6 of 8 episodes) where the default, the folder of the loaded skill, is what is meant.
_LEFT_OUT = {_SHELL: ("cwd", "timeout")}
# A model of 1.5B copies the beginning of an event at best, and writes "" if it can. Other input can be part of the
# command, if a shell runs it.
_STDIN = {"type": "string", "enum": ["$EVENT"], "description": "The whole event, if the command reads it."}


@dataclass(frozen=True)
class Action:
    """Possible next action of a model: to call a tool, or to answer.

    Args:
        name: The name of the tool, or ``answer``.
        description: Purpose, for the model.
        parameters: The JSON schema of its arguments.
        with_thought: Whether the model writes a thought before the arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    with_thought: bool = False


def has_menu(system: str) -> bool:
    """Return True if ``system`` may contain a menu, without parsing it."""
    return _MENU_TAG in system


def offered_skills(system: str) -> list[tuple[str, str]]:
    """Return the names and descriptions in the menu of ``system``. The list is empty without a menu."""
    return parse_menu(system) if has_menu(system) else []


def all_actions(request: ModelRequest) -> list[Action]:
    """Return all actions of ``request`` regardless of its state: its tools, and the answer."""
    tools = [
        # A model of 1.5B puts the words of the request into a command instead of the values that a file gives for them,
        # unless it states these values before.
        Action(tool.name, tool.description, _short(tool), with_thought=tool.name == _SHELL)
        for tool in request.tools
    ]
    return [*tools, _answer(request.output_schema)]


def allowed_actions(request: ModelRequest) -> list[Action]:
    """Return the actions of ``request`` that make sense in its state, the likeliest first.

    While skills are offered and none is loaded, the model can load one, call an agent's tool, or answer. A
    loaded skill is not offered again. The answer comes first after a repeated call, and after a command that succeeded
    with output. After a failed command, no skill is loaded or unloaded.
    """
    offered = [name for name, _ in offered_skills(request.system)]
    loaded = loaded_skills(request.messages)
    unloaded = [name for name in offered if name not in loaded]
    *tools, answer = all_actions(request)
    actions: list[Action] = []
    for action in tools:
        if offered and not loaded and action.name in _NEED_SKILL:
            continue
        if action.name == _LOAD and offered:
            names = unloaded
        elif action.name in (_UNLOAD, _RESOURCE) and loaded:
            names = loaded
        else:
            actions.append(action)
            continue
        if names:
            named = _with_names(action.parameters, names)
            # Small models omit what they may omit: without a name the path is one of the workspace.
            actions.append(replace(action, parameters=_requiring_name(named) if action.name == _RESOURCE else named))
    if loaded:
        # The model follows the loaded skill before it loads another one.
        actions.sort(key=lambda action: action.name in (_LOAD, _UNLOAD))
    if request.messages and failed_command(request.messages[-1]):
        # A small model loads one skill after the other where it should correct the command.
        actions = [action for action in actions if action.name not in (_LOAD, _UNLOAD)]
    if _after_command(request.messages):
        return [answer, *actions]
    return [*actions, answer]


def loaded_skills(messages: Sequence[Message]) -> list[str]:
    """Return the names of the skills that are loaded in this conversation, oldest first."""
    asked: dict[str, tuple[str, str]] = {}
    loaded: dict[str, None] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if isinstance(call.arguments, Mapping):
                    asked[call.id] = (call.name, str(call.arguments.get("name", "")))
        elif isinstance(message, ToolMessage) and not message.is_error:
            tool, name = asked.get(message.call_id, ("", ""))
            if tool == _LOAD and not says_unloaded(message.content, name):
                loaded[name] = None
            elif tool in (_LOAD, _UNLOAD):
                loaded.pop(name, None)
    return list(loaded)


def action_schema(actions: Sequence[Action]) -> dict[str, Any]:
    """The JSON schema of one action: ``{"action": name, "thought": text, "arguments": {…}}``.

    Definitions (``$defs``) of the actions' own schemas move to the root, where their references point.
    """
    definitions: dict[str, Any] = {}
    variants = [
        {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": [action.name]},
                **({THOUGHT: {"type": "string"}} if action.with_thought else {}),
                "arguments": _closed(_embedded(action.parameters, f"a{number}_", definitions)),
            },
            "required": ["action", *([THOUGHT] if action.with_thought else []), "arguments"],
            "additionalProperties": False,
        }
        for number, action in enumerate(actions)
    ]
    # Providers want an object at the root, hence the envelope around a choice.
    schema: dict[str, Any] = {
        "title": "next_action",
        "type": "object",
        "properties": {"next": variants[0] if len(variants) == 1 else {"anyOf": variants}},
        "required": ["next"],
        "additionalProperties": False,
    }
    if definitions:
        schema["$defs"] = definitions
    return schema


def _answer(output_schema: Mapping[str, Any] | None) -> Action:
    content: Mapping[str, Any] = {"type": "string"} if output_schema is None else output_schema
    return Action(
        ANSWER,
        "Finish: give the final answer.",
        {"type": "object", "properties": {"content": content}, "required": ["content"]},
    )


def failed_command(message: Message) -> bool:
    """Return whether the message is the result of a command whose exit code is not 0."""
    return isinstance(message, ToolMessage) and message.name == _SHELL and says_failure(message.content)


def gave_nothing(message: Message) -> bool:
    """Return whether the message states that a command wrote no output."""
    return isinstance(message, ToolMessage) and message.name == _SHELL and says_nothing(message.content)


def _after_command(messages: Sequence[Message]) -> bool:
    # A file of a skill is read for a later step, such as a command with a value from this file.
    skill_tools = (_LOAD, _UNLOAD, _RESOURCE)
    last = messages[-1] if messages else None
    if not isinstance(last, ToolMessage) or last.name in skill_tools:
        return False
    return says_repeated(last.content) or not (failed_command(last) or gave_nothing(last))


def _with_names(parameters: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """``parameters`` with ``name`` being one of ``names``."""
    changed = copy.deepcopy(dict(parameters))
    name = changed.get("properties", {}).get("name")
    if isinstance(name, dict):
        name["enum"] = list(names)
    return changed


def _requiring_name(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    required = parameters.get("required", ())
    return {**parameters, "required": [*dict.fromkeys(["name", *required])]}


def _short(tool: ToolSpec) -> Mapping[str, Any]:
    """Return the parameters of ``tool`` without what is left out for small models."""
    omitted, parameters = _LEFT_OUT.get(tool.name, ()), object_schema(tool.parameters)
    required = parameters.get("required", ())
    properties = {
        name: schema
        for name, schema in parameters.get("properties", {}).items()
        if name not in omitted or name in required
    }
    if tool.name == _SHELL and "stdin" in properties and NO_SHELL not in tool.description:
        properties["stdin"] = _STDIN
    return {**parameters, "properties": properties}


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        return {"additionalProperties": False, **schema}
    return schema


def _embedded(schema: Any, prefix: str, definitions: dict[str, Any]) -> Any:
    """A copy of ``schema`` for a place inside another one: its definitions go to ``definitions`` under
    names with ``prefix``, and references follow."""
    if isinstance(schema, list):
        return [_embedded(item, prefix, definitions) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    changed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$defs", "definitions") and isinstance(value, Mapping):
            for name, definition in value.items():
                definitions[prefix + name] = _embedded(definition, prefix, definitions)
        elif key == "$ref" and isinstance(value, str) and value.startswith(("#/$defs/", "#/definitions/")):
            changed[key] = "#/$defs/" + prefix + value.rsplit("/", 1)[1]
        else:
            changed[key] = _embedded(value, prefix, definitions)
    return changed
