"""A chat model that needs no network: the same conversation always gets the same answer.

It does what a well-behaved model does with skills, by fixed rules: read the menu in the system text,
load the skill whose description fits the event best, run the first command block of its instructions
with the event on standard input, and answer with what the command wrote. When no skill fits, it asks the
agent whose description as a tool fits best, and answers with what that agent says. It knows nothing about
any particular skill, and it keeps nothing: everything is read off the conversation.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from flink_skills.models.actions import has_menu, offered_skills
from flink_skills.models.base import ChatModel, emit_calls
from flink_skills.models.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from flink_skills.models.notices import named_in_notice
from flink_skills.models.offline_rules import SkillIndex, first_command, first_paragraph
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig
from flink_skills.telemetry import OnDelta, TextDelta
from flink_skills.tools.base import ToolSpec
from flink_skills.tools.result_text import says_nothing
from flink_skills.tools.skills.skill_prompts import says_unloaded

# Tools by what they do, with the argument that names the skill: those of the profile core, and of the others.
_LOAD = {"load_skill": "name", "skill_load": "skill"}
_UNLOAD = {"unload_skill": "name", "skill_unload": "skill"}
_SHELL = ("execute_shell_command", "skill_run")
# The argument of a tool that is another agent.
_REQUEST = "request"

NO_SKILL = "No skill fits this event."

_MENUS_KEPT = 64
_STDERR_TAIL = 2000

# A stream comes a word at a time, as that of a model on a network does; no answer is made of more pieces than this.
_PIECE = re.compile(r"\S+\s*|\s+")
_MAX_PIECES = 500

_EXIT_CODE = re.compile(r"^[^\S\n]*(?:exit|return)[ _]code:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_STDOUT = re.compile(r"^stdout:[ \t]*\n?", re.IGNORECASE | re.MULTILINE)
_STDERR = re.compile(r"^stderr:[ \t]*\n?", re.IGNORECASE | re.MULTILINE)


class OfflineModel(ChatModel):
    """The deterministic stand-in for a chat model.

    Tokens are not counted (it has none); each request counts as one.

    >>> import asyncio
    >>> request = ModelRequest(system="", messages=[UserMessage("hello")])
    >>> asyncio.run(OfflineModel().request(request)).text
    'No skill fits this event.'
    """

    def __init__(self, name: str = "offline") -> None:
        self.name = name
        # Menus differ per agent, not per event: a handful of entries serves a job.
        self._index = lru_cache(maxsize=_MENUS_KEPT)(_index_of)

    async def request(self, request: ModelRequest) -> ModelResponse:
        messages = request.messages
        start = _last_event(messages)
        if start is None:
            return _answer(NO_SKILL)
        event = messages[start].content
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return self._after_tool(request, last, event)
        skill = self._index(request.system).best(event) if has_menu(request.system) else None
        if skill is None:
            agent = SkillIndex(_agents(request.tools)).best(event)
            return _answer(NO_SKILL) if agent is None else _call(messages, agent, {_REQUEST: event})
        loaded = _content_of(request.system, skill) or _loaded_text(messages, skill)
        if loaded is not None:
            return _follow(request, skill, loaded, event)
        load = _offered(request, _LOAD)
        if load is None:
            return _answer(f"The skill {skill} fits this event, but {next(iter(_LOAD))} is not offered.")
        return _call(messages, load, {_LOAD[load]: skill})

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        response = await self.request(request)
        pieces = _PIECE.findall(response.text)
        words = -(-len(pieces) // _MAX_PIECES) or 1
        for at in range(0, len(pieces), words):
            on_delta(TextDelta("".join(pieces[at : at + words])))
            await asyncio.sleep(0)  # other turns run, and this one can be cancelled
        emit_calls(response.tool_calls, on_delta)
        return response

    def _after_tool(self, request: ModelRequest, last: ToolMessage, event: str) -> ModelResponse:
        if last.name in _SHELL:
            return _answer(_report(last))
        if last.name in _LOAD and not last.is_error:
            skill = _named_in_call(request.messages, last)
            return _follow(request, skill, _content_of(request.system, skill) or last.content, event)
        return _answer(last.content.strip())


def create(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Make the model for the registry."""
    return OfflineModel(setup.label)


def _index_of(system: str) -> SkillIndex:
    return SkillIndex(offered_skills(system))


def _last_event(messages: Sequence[Message]) -> int | None:
    for position in range(len(messages) - 1, -1, -1):
        if isinstance(messages[position], UserMessage):
            return position
    return None


def _loaded_text(messages: Sequence[Message], skill: str) -> str | None:
    """Return the content of ``skill`` if it was loaded in this conversation, and neither unloaded nor changed since."""
    text: str | None = None
    asked: dict[str, tuple[bool, str]] = {}
    for message in messages:
        if skill in named_in_notice(message):
            text = None
        elif isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                argument = {**_LOAD, **_UNLOAD}.get(call.name)
                if argument is not None and isinstance(call.arguments, Mapping):
                    asked[call.id] = (call.name in _UNLOAD, str(call.arguments.get(argument, "")))
        elif isinstance(message, ToolMessage) and not message.is_error:
            unloads, name = asked.get(message.call_id, (False, ""))
            if name != skill:
                continue
            if unloads or says_unloaded(message.content, name):
                text = None
            elif message.stub and "<skill_content" not in message.content:
                text = None  # it was loaded for a turn that is over
            elif text is None or first_command(message.content) is not None:
                # The result of a second load can be only "is loaded already". The earlier instructions remain valid.
                text = message.content
    return text


def _content_of(system: str, skill: str) -> str | None:
    """Return the content of a loaded skill in the system prompt. Return None if the prompt lacks it."""
    opening = f'<skill_content name="{skill}">'
    start = system.find(opening)
    end = system.find("</skill_content>", start)
    return system[start : end + len("</skill_content>")] if start >= 0 and end >= 0 else None


def _named_in_call(messages: Sequence[Message], result: ToolMessage) -> str:
    """Return the skill that the call of this result names."""
    for message in reversed(messages):
        for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
            if call.id == result.call_id and isinstance(call.arguments, Mapping):
                return str(call.arguments.get(_LOAD.get(call.name, ""), ""))
    return ""


def _follow(request: ModelRequest, skill: str, instructions: str, event: str) -> ModelResponse:
    shell = _offered(request, _SHELL)
    command = first_command(instructions)
    if shell is not None and command is not None:
        named = {"skill": skill} if shell == "skill_run" else {}
        return _call(request.messages, shell, {**named, "command": command, "stdin": event})
    return _answer(first_paragraph(instructions))


def _agents(tools: Sequence[ToolSpec]) -> list[tuple[str, str]]:
    """Return the tools that are agents, with their descriptions: those that need a text ``request`` and no more."""
    return [(spec.name, spec.description) for spec in tools if list(spec.parameters.get("required", ())) == [_REQUEST]]


def _offered(request: ModelRequest, tools: Iterable[str]) -> str | None:
    """Return the first of ``tools`` that the model may call."""
    offered = {spec.name for spec in request.tools}
    return next((tool for tool in tools if tool in offered), None)


def _call(messages: Sequence[Message], tool: str, arguments: Mapping[str, object]) -> ModelResponse:
    # The length of the conversation makes the id unique in it, and the same when the step is repeated.
    call = ToolCall(id=f"offline-{len(messages)}", name=tool, arguments=arguments)
    return ModelResponse("", (call,), _ONE_REQUEST, "tool_calls")


def _answer(text: str) -> ModelResponse:
    return ModelResponse(text, (), _ONE_REQUEST, "stop")


_ONE_REQUEST = Usage(requests=1)


def _report(result: ToolMessage) -> str:
    """Return the answer for a command's result: its stdout, or its error."""
    text = result.content
    if result.is_error:
        return text.strip()
    code = _EXIT_CODE.search(text)
    stdout, stderr = _streams(text)
    if stdout.strip() and (code is None or code.group(1) == "0"):
        return stdout.strip()
    if code is None:
        return text.strip()
    ended = f"The command ended with exit code {code.group(1)}"
    start = _STDOUT.search(text)
    notes = text[code.end() : start.start()].strip() if start else ""
    tail = (stderr.strip() or stdout.strip())[-_STDERR_TAIL:]
    details = "" if says_nothing(text) else "\n".join(part for part in (notes, tail) if part)
    return f"{ended}: {details}" if details else f"{ended} and wrote nothing."


def _streams(text: str) -> tuple[str, str]:
    """Return stdout and stderr of a shell result, which can be JSON."""
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict) and "stdout" in data:
            return str(data["stdout"]), str(data.get("stderr", ""))
    start = _STDOUT.search(text)
    if start is None:
        return "", text
    # The last heading counts: a command that prints the word "stderr:" does not end its own stdout.
    ends = list(_STDERR.finditer(text, start.end()))
    if not ends:
        return text[start.end() :], ""
    return text[start.end() : ends[-1].start()], text[ends[-1].end() :]
