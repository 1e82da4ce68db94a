"""Scripts for a model server: which request gets which reply, as data or as code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.hints import none_is_default


@none_is_default
@dataclass(frozen=True)
class Call:
    """A tool call of a reply. ``arguments`` is an object, or raw text to send as it is (also broken JSON).
    An empty ``id`` becomes ``call_N``, unique in the server."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""


@none_is_default
@dataclass(frozen=True)
class Reply:
    """What the server does with a request: all that is set happens.

    ``latency`` seconds pass first. ``hang`` never answers (until the client goes or the server stops).
    ``status`` other than 200 sends an error with ``error`` as its message, and ``retry_after`` seconds
    in the header (a text, such as a date, as it is). ``body`` is sent as it is, as JSON by its content type and garbage
    in truth. A ``status`` and a ``body`` together send the body as the error.
    Where a stream is asked for, ``piece_latency`` seconds pass before each event of it, after ``break_after``
    events the connection is cut, and after ``stall_after`` nothing more comes, while it stays open. With
    ``interleaved``, the pieces of several tool calls take turns. A whole answer is cut after
    ``cut_after`` bytes. ``headers`` are sent with any of these.
    ``reasoning`` precedes the answer in the form of the API, signed or encrypted if the API does so.
    In ``text`` and in arguments, ``{last_user}``, ``{last_tool}`` and ``{n}`` stand for the last user's
    text, the last tool result and the number of the request.
    """

    text: str = ""
    tool_calls: tuple[Call, ...] = ()
    reasoning: str = ""
    status: int = 200
    error: str = "scripted error"
    retry_after: float | str | None = None
    hang: bool = False
    body: str | None = None
    latency: float | None = None
    piece_latency: float = 0.0
    break_after: int | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    interleaved: bool = False
    finish_reason: str = ""
    input_tokens: int = 10
    output_tokens: int = 5
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conversation:
    """The parts of a chat request that rules look at, from either wire format."""

    model: str
    system: str
    last_user: str
    last_tool: str
    messages: int
    tool_results: int
    last_role: str

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Conversation:
        """Read a request of OpenAI's chat completions or responses, or of Anthropic's messages."""
        system = [_text(request.get("system") or request.get("instructions") or "")]
        users: list[str] = []
        tools: list[str] = []
        last_role = ""
        listed = request.get("messages") or request.get("input") or ()
        messages = [_message(m) for m in listed if isinstance(m, Mapping)]
        for message in messages:
            role, content = str(message.get("role", "")), message.get("content") or ""
            last_role = role
            if role in ("system", "developer"):
                system.append(_text(content))
            elif role == "tool":
                tools.append(_text(content))
            elif role == "user":
                results = [p for p in _parts(content) if p.get("type") == "tool_result"]
                tools.extend(_text(p.get("content", "")) for p in results)
                if results:
                    last_role = "tool"
                if not results or _text(content):
                    users.append(_text(content))
        return cls(
            model=str(request.get("model", "")),
            system="\n".join(part for part in system if part),
            last_user=users[-1] if users else "",
            last_tool=tools[-1] if tools else "",
            messages=sum(m.get("role") not in ("system", "developer") for m in messages),
            tool_results=len(tools),
            last_role=last_role,
        )


@dataclass(frozen=True)
class Rule:
    """A condition and its reply. All conditions that are set must hold: ``last_user``, ``last_tool``,
    ``system`` and ``model`` are regular expressions searched in these texts, ``messages`` (without the
    system's) and ``tool_results`` are exact numbers, ``last_role`` is ``user``, ``tool`` or ``assistant``.
    ``times`` is how often the rule applies before the next one gets its turn; None: always.
    """

    reply: Reply
    last_user: str | None = None
    last_tool: str | None = None
    system: str | None = None
    model: str | None = None
    messages: int | None = None
    tool_results: int | None = None
    last_role: str | None = None
    times: int | None = None

    def matches(self, conversation: Conversation) -> bool:
        for name in ("last_user", "last_tool", "system", "model"):
            pattern = getattr(self, name)
            if pattern is not None and not re.search(pattern, getattr(conversation, name)):
                return False
        for name in ("messages", "tool_results", "last_role"):
            wanted = getattr(self, name)
            if wanted is not None and wanted != getattr(conversation, name):
                return False
        return True


@none_is_default
class Script:
    """Rules in order; the first that matches and is not used up replies.

    >>> script = Script([Rule(Reply("hello"), last_user="hi"), Rule(Reply("what?"))])
    >>> script.reply(Conversation.of({"messages": [{"role": "user", "content": "hi"}]})).text
    'hello'
    """

    def __init__(self, rules: Sequence[Rule], *, latency: float = 0.0) -> None:
        self.rules = list(rules)
        self.latency = latency
        self._used = [0] * len(self.rules)

    def reply(self, conversation: Conversation) -> Reply:
        for number, rule in enumerate(self.rules):
            if rule.times is not None and self._used[number] >= rule.times:
                continue
            if rule.matches(conversation):
                self._used[number] += 1
                return rule.reply
        return Reply(status=400, error=f"the script has no rule that matches: {conversation}"[:2000])

    @classmethod
    def from_data(cls, data: Any) -> Script:
        """Read a script from JSON-like data: ``{"latency": seconds, "rules": [...]}`` or the list of rules.

        A rule is one flat object: conditions and reply fields together, such as
        ``{"last_user": "hi", "text": "hello", "latency": 0.5, "times": 2}``.
        """
        latency = 0.0
        if isinstance(data, Mapping):
            _known("script", data, ("latency", "rules"))
            latency, data = float(data.get("latency", 0.0)), data.get("rules", ())
        if not isinstance(data, Sequence) or isinstance(data, str):
            raise ConfigError("a script is a list of rules, or an object with 'rules'")
        return cls([_rule(item, number) for number, item in enumerate(data, 1)], latency=latency)


def load_script(path: str | Path) -> Script:
    """Read a script file, YAML or JSON. Raises :class:`ConfigError` naming the file."""
    import yaml

    try:
        return Script.from_data(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"script {path} cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"script {path} is neither YAML nor JSON: {error}") from error


_REPLY_FIELDS = {f.name for f in fields(Reply)}
_RULE_FIELDS = {f.name for f in fields(Rule)} - {"reply"}


def _rule(item: Any, number: int) -> Rule:
    if not isinstance(item, Mapping):
        raise ConfigError(f"rule {number} of the script is not an object: {json.dumps(item)[:100]}")
    _known(f"rule {number}", item, _REPLY_FIELDS | _RULE_FIELDS)
    reply = {name: value for name, value in item.items() if name in _REPLY_FIELDS}
    wanted = reply.get("tool_calls", ())
    for one in wanted:
        _known(f"a tool call of rule {number}", one, [f.name for f in fields(Call)])
    reply["tool_calls"] = tuple(Call(**one) for one in wanted)
    rule = {name: value for name, value in item.items() if name in _RULE_FIELDS}
    return Rule(Reply(**reply), **rule)


def _known(place: str, data: Mapping[str, Any], names: Any) -> None:
    for name in data:
        if name not in names:
            raise UnknownNameError("field", str(name), names, place=place)


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item of a response as the message of a chat completion that says the same."""
    if item.get("type") == "function_call_output":
        return {"role": "tool", "content": item.get("output")}
    return item if "role" in item or "type" not in item else {"role": "assistant"}


def _parts(content: Any) -> list[Mapping[str, Any]]:
    return [p for p in content if isinstance(p, Mapping)] if isinstance(content, list) else []


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in _parts(content))
