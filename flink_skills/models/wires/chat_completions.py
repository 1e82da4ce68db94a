"""The wire of OpenAI's chat completions, which most other servers speak, too.

The rules are those of https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flink_skills.models.endings import AnswerEnd, end_of
from flink_skills.models.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
)
from flink_skills.models.results import (
    NO_ANSWER,
    arguments_of,
    arguments_to_send,
    check_number,
    counted_usage,
    error_text,
    identified,
    in_sequence,
    instead_of_answer,
    joined,
    number_of,
)
from flink_skills.models.schemas import is_strict, schema_name, tool_schema
from flink_skills.models.well_formed import sent_name
from flink_skills.models.wires.json_bytes import dump, object_of
from flink_skills.models.wires.media_parts import chat_part, heading, user_content
from flink_skills.models.wires.pieces import content_text, is_thought, stated_reason
from flink_skills.models.wires.streams import ChatStream
from flink_skills.models.wires.wire import Fixed, NoCompletionError, Wire
from flink_skills.models.wrapped import without_thoughts
from flink_skills.tools.base import ToolSpec

_log = logging.getLogger("flink_skills.model")

_SAME = (
    "temperature",
    "top_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "service_tier",
)
_RENAMED = {"stop_sequences": "stop", "openai_text_verbosity": "verbosity"}
# Settings without a field, and those that ``fields`` maps one by one.
_ELSEWHERE = frozenset({"extra_body", "extra_headers", "max_tokens", "parallel_tool_calls", "thinking", "top_k"})
# Models that reason on each request reject these: https://platform.openai.com/docs/guides/reasoning.
_REASONING_MODEL = re.compile(r"(?:o[1-9]|gpt-5)(?:-(?:mini|nano|pro|codex))?(?:-\d{4}-\d\d-\d\d)?$")
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias")


class ChatSettings:
    """Encodes settings, and keeps what it encoded last. ``own`` says that the server is OpenAI's or Azure's."""

    def __init__(self, model: str, *, own: bool) -> None:
        self._model = model
        self._own = own
        self._kept: dict[bool, tuple[Mapping[str, Any], bytes]] = {}

    def encoded(self, settings: Mapping[str, Any], *, with_tools: bool) -> bytes:
        """Return the fields as JSON that continues an object: each with a comma before it."""
        kept = self._kept.get(with_tools)
        if kept is None or kept[0] is not settings:
            fields = dump(self.fields(settings, with_tools=with_tools))
            kept = self._kept[with_tools] = (settings, b"," + fields[1:-1] if len(fields) > 2 else b"")
        return kept[1]

    def fields(self, settings: Mapping[str, Any], *, with_tools: bool) -> dict[str, Any]:
        """Return the fields of a chat completion for settings."""
        found: dict[str, Any] = {}
        for name, value in settings.items():
            if value is None or name in _ELSEWHERE:
                continue
            if name in _SAME:
                found[name] = value
            elif name in _RENAMED:
                found[_RENAMED[name]] = value
            elif name.startswith("openai_"):
                found[name.removeprefix("openai_")] = value
        if (most := settings.get("max_tokens")) is not None:
            found["max_completion_tokens" if self._own else "max_tokens"] = most
        if with_tools and (parallel := settings.get("parallel_tool_calls")) is not None:
            found["parallel_tool_calls"] = parallel
        if not self._own and (top_k := settings.get("top_k")) is not None:
            found["top_k"] = top_k
        effort = reasoning_effort(settings.get("thinking"))
        if effort:
            found.setdefault("reasoning_effort", effort)
        if self._own:
            leave_out_sampling(self._model, found)
        # The user's own fields replace all others.
        found.update(settings.get("extra_body") or {})
        return found


def leave_out_sampling(model: str, found: dict[str, Any]) -> None:
    """Remove the fields of a request that a model of OpenAI rejects because it reasons on each request."""
    if not _REASONING_MODEL.match(model):
        return
    left_out = [name for name in _SAMPLING if found.pop(name, None) is not None]
    if left_out:
        _log.warning("chat model %s reasons and takes no %s: left out", model, ", ".join(left_out))


def reasoning_effort(thinking: Any) -> str:
    """Return the effort for the setting ``thinking``, a word or a boolean. Return an empty string if it is not set."""
    if thinking is None or isinstance(thinking, str):
        return thinking or ""
    return "medium" if thinking else "none"


# Fields of a message that say the same as its text and its calls, or are not for the next request.
_OWN_FIELDS = frozenset({"role", "content", "tool_calls", "refusal", "annotations", "audio", "function_call", "name"})
# Fields with reasoning in plain text. Servers want it back only together with calls of tools.
_REASONING = frozenset({"reasoning", "reasoning_content"})
# Tokens that were read from the cache, as DeepSeek, Moonshot and Together, and gateways to Anthropic state them.
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
_CALL_FIELDS = frozenset({"id", "type", "index", "function"})
# Servers of these models reject any other id: https://docs.mistral.ai/api/#tag/chat.
_MISTRAL = re.compile(r"(?:mi(?:s|x|ni)tral|magistral|codestral|devstral|pixtral|voxtral)", re.IGNORECASE)
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


class ChatCompletions(Wire):
    """Maps a conversation to chat completions.

    Args:
        label: The label of the model.
        model: The name of the model.
        own: Whether the server is OpenAI's or Azure's. Others get the older names of some settings, which all know.
        path: The path of the API behind the base URL.
    """

    def __init__(self, label: str, model: str, *, own: bool = False, path: str = "/chat/completions") -> None:
        super().__init__(label, model)
        self.path = path
        self._settings = ChatSettings(model, own=own)
        self._fixed = Fixed(_tool)
        self._id = _mistral_id if _MISTRAL.search(model) else str
        self._head = b'{"model":' + dump(model) + b',"messages":['

    def body(self, request: ModelRequest, settings: Mapping[str, Any], *, stream: bool) -> bytes:
        pieces = [self._head]
        if request.system:
            pieces.append(self._fixed.system(request.system, _system))
            if request.messages:
                pieces.append(b",")
        pieces += (self.messages(request.messages), b"]")
        if request.tools:
            pieces += (b',"tools":[', self._fixed.tools(request.tools), b"]")
        if request.output_schema is not None:
            pieces += (b',"response_format":', dump(_format(request.output_schema)))
        if stream:
            pieces.append(b',"stream":true,"stream_options":{"include_usage":true}')
        encoded = self._settings.encoded(settings, with_tools=bool(request.tools))
        pieces += (encoded, self.cache_key(request, settings), b"}")
        return b"".join(pieces)

    def encoded(self, messages: Sequence[Message], at: int) -> tuple[bytes, int]:
        if isinstance(messages[at], AssistantMessage):
            answers = in_sequence(messages, at, AssistantMessage)
            message = joined(answers)
            if message.verbatim is not None and message.verbatim.model == self.label:
                return message.verbatim.raw.encode(), 1
            return dump(_assistant(message, self._id)), len(answers)
        return _results_and_texts(messages, at, self._id)

    def usage(self, stated: Mapping[str, Any]) -> Usage:
        details, output = object_of(stated.get("prompt_tokens_details")), number_of(stated.get("completion_tokens"))
        prompt = stated.get("prompt_tokens")
        if (total := number_of(stated.get("total_tokens"))) > output:
            # Gemini and Grok count the tokens of reasoning only in the total.
            output = max(output, total - number_of(prompt))
        return counted_usage(
            prompt,
            output,
            read=next(filter(None, (details.get("cached_tokens"), *map(stated.get, _CACHED))), 0),
            written=details.get("cache_write_tokens") or stated.get("cache_creation_input_tokens"),
            reasoning=object_of(stated.get("completion_tokens_details")).get("reasoning_tokens"),
        )

    def response(self, data: Any) -> ModelResponse:
        answer = object_of(data)
        choices = answer.get("choices")
        choice = object_of(choices[0]) if isinstance(choices, list) and choices else {}
        reason = _reason_of(choice)
        # Some servers return a filtered or failed answer without a message.
        message = choice.get("message") or ({} if reason else None)
        if not isinstance(message, dict):
            raise NoCompletionError("the response has no choices")
        calls = _calls(message)
        content, refused = message.get("content"), message.get("refusal")
        text = content if type(content) is str else content_text(content)
        refusal = content_text(refused) if refused else ""
        response = ModelResponse(
            text or refusal,
            tuple(map(_call, calls)),
            self.usage(object_of(answer.get("usage"))),
            "refusal" if refusal and not text else reason or "",
            self._verbatim(message, calls),
            "" if calls or (text or refusal).strip() else _instead(message),
        )
        return identified(response, str(answer.get("id") or uuid.uuid4().hex))

    def reader(self) -> ChatStream:
        return ChatStream(self.response)

    def _verbatim(self, message: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> Verbatim | None:
        """Return the message as it came if it has what its server wants back, such as signatures of its reasoning."""
        more = {name: value for name, value in message.items() if name not in _OWN_FIELDS and value}
        if not calls:
            more = {name: value for name, value in more.items() if name not in _REASONING}
        signed = any(call.keys() - _CALL_FIELDS for call in calls)
        if not more and not signed and not (calls and _has_thoughts(message.get("content"))):
            return None
        kept = {"role": "assistant", "content": message.get("content") or None, **more}
        if calls:
            kept["tool_calls"] = list(map(_to_keep, calls))
        return Verbatim(self.label, dump(kept).decode())


def _system(text: str) -> bytes:
    return dump({"role": "system", "content": text})


def _tool(tool: ToolSpec) -> bytes:
    function = {"name": tool.name, "description": tool.description, "parameters": tool_schema(tool.parameters)}
    return dump({"type": "function", "function": function})


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"name": schema_name(schema), "schema": schema}
    if "description" in schema:
        described["description"] = str(schema["description"])
    if is_strict(schema):
        described["strict"] = True
    return {"type": "json_schema", "json_schema": described}


def _mistral_id(id_: str) -> str:
    """Return the id of a call from another provider in the form of Mistral: nine letters and digits."""
    return id_ if _MISTRAL_ID.fullmatch(id_) else hashlib.sha256(id_.encode()).hexdigest()[:9]


def _assistant(message: AssistantMessage, id_of: Callable[[str], str]) -> dict[str, Any]:
    if not message.tool_calls:
        return {"role": "assistant", "content": message.content if message.content.strip() else NO_ANSWER}
    calls = [
        {
            "id": id_of(call.id),
            "type": "function",
            "function": {"name": sent_name(call.name), "arguments": dump(arguments_to_send(call.arguments)).decode()},
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content or None, "tool_calls": calls}


def _results_and_texts(messages: Sequence[Message], at: int, id_of: Callable[[str], str]) -> tuple[bytes, int]:
    """Return the results of tools from ``at`` on, or the messages of the user.

    Results contain only text. A message of the user has their media, and the messages behind them.
    """
    results = in_sequence(messages, at, ToolMessage)
    found = [dump({"role": "tool", "tool_call_id": id_of(of.call_id), "content": error_text(of)}) for of in results]
    of_user = [UserMessage(heading(of.name), of.media) for of in results if of.media]
    number = len(results)
    if of_user or not results:
        texts = in_sequence(messages, at + number, UserMessage)
        of_user += texts
        number += len(texts)
    if of_user:
        found.append(dump({"role": "user", "content": user_content(of_user, _text_part, chat_part)}))
    return b",".join(found), number


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the calls of a message. Some servers have only one, by the older name."""
    calls = message.get("tool_calls")
    if not calls:
        call = message.get("function_call")
        return [{"function": call}] if isinstance(call, dict) else []
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        return []
    check_number(len(calls))
    return [_nested(object_of(call)) for call in calls]


def _nested(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call in the usual form. Some servers have its name next to its id."""
    if not call.get("name") or object_of(call.get("function")).get("name"):
        return call
    return {"id": call.get("id"), "function": {"name": call["name"], "arguments": call.get("arguments")}}


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = object_of(call.get("function"))
    return ToolCall(str(call.get("id") or ""), str(function.get("name") or ""), arguments_of(function.get("arguments")))


def _to_keep(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call as it came, for a later request. Servers parse its arguments, so a text is wrapped."""
    kept = {**{name: of for name, of in call.items() if name != "index"}, "type": "function"}
    function = object_of(call.get("function"))
    arguments = arguments_of(function.get("arguments"))
    if isinstance(arguments, str):
        kept["function"] = {**function, "arguments": dump(arguments_to_send(arguments)).decode()}
    return kept


def _reason_of(choice: Mapping[str, Any]) -> str | None:
    """Return the reason why a choice ended, with what a router and the filters of Azure add to it. None if it has none.

    >>> _reason_of({"finish_reason": "content_filter", "content_filter_results": {"hate": {"filtered": True}}})
    'content_filter: hate'
    """
    reason = stated_reason(choice)
    if not reason:
        return None
    native, filters = choice.get("native_finish_reason"), choice.get("content_filter_results")
    if not (native or filters):
        return reason
    native = str(native or "")
    found = [reason, *([native] if end_of(native) is not AnswerEnd.COMPLETE and native != reason else [])]
    return ": ".join(
        [*found, *(name for name, of in object_of(filters).items() if object_of(of).get("filtered") is True)]
    )


def _has_thoughts(content: Any) -> bool:
    if isinstance(content, list):
        return any(map(is_thought, map(object_of, content)))
    return isinstance(content, str) and without_thoughts(content) is not content


def _instead(message: Mapping[str, Any]) -> str:
    """Return what a message without text and calls has."""
    content = message.get("content")
    thoughts = [part.get("thinking") for part in map(object_of, content)] if isinstance(content, list) else []
    # Servers state the same reasoning in more than one field.
    reasoning = next(
        (text for text in map(content_text, (*map(message.get, sorted(_REASONING)), *thoughts)) if text), ""
    )
    others = (name for name, value in message.items() if value and name not in _REASONING | {"role", "content"})
    return instead_of_answer([reasoning], others)
