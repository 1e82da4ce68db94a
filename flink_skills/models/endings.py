"""The reasons why answers end, as providers name them, and what each reason means for the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from functools import lru_cache

from flink_skills.errors import ModelError
from flink_skills.models.messages import ModelResponse


class AnswerEnd(Enum):
    """The end of an answer.

    A complete answer is used. A cut one ended at a limit of its length. A filtered one was stopped or replaced because
    of its content. A paused one continues with the next request. A failed one has to be requested again.
    """

    COMPLETE = "stop"
    CUT = "length"
    FILTERED = "content_filter"
    PAUSED = "pause_turn"
    FAILED = "error"


# Names without case and punctuation.
_STOPS = frozenset({"stop", "endturn", "stopsequence", "compaction", "complete", "completed", "eos", "eostoken"})
_CALLS = frozenset({"toolcalls", "toolcall", "tooluse", "functioncall"})
# Names whose words say something else, or nothing.
_EXACT = {
    **dict.fromkeys((*_STOPS, *_CALLS, "unload", "invalid"), AnswerEnd.COMPLETE),
    **dict.fromkeys(("errorlimit", "continuation", "notfinished", "maxtime", "repetition"), AnswerEnd.CUT),
    **dict.fromkeys(("inprogress", "queued", "functioncallfilter", "other", "imageother", "noimage"), AnswerEnd.FAILED),
    **dict.fromkeys(("missingthoughtsignature", "oom"), AnswerEnd.FAILED),
    "language": AnswerEnd.FILTERED,
    "suspended": AnswerEnd.PAUSED,
}
_WORDS = (
    (AnswerEnd.PAUSED, ("pause",)),
    (
        AnswerEnd.FILTERED,
        (
            *("filter", "safe", "refus", "block", "prohibit", "guardrail", "moderat", "sensitive", "recitation"),
            *("pii", "toxic", "armor", "policy", "violat", "harm", "flagged", "censor", "copyright", "blacklist"),
            *("inappropriate", "denied", "disallow", "profan", "jailbreak", "injection", "hatespeech", "risk"),
            *("protected", "offensive"),
        ),
    ),
    (
        AnswerEnd.FAILED,
        (
            *("error", "fail", "malformed", "insufficient", "unavailable", "overload", "abort", "cancel", "timeout"),
            *("interrupt", "unexpected", "toomany", "ratelimit", "exception", "quota", "deadline", "resource"),
            *("invalid", "unparsable", "unparseable", "throttl", "crash", "kill", "evict", "preempt", "shutdown"),
            *("died", "dead", "disconnect", "internal", "unload", "userstop", "byuser", "badfunction", "badtool"),
        ),
    ),
    (
        AnswerEnd.CUT,
        (
            *("length", "max", "limit", "truncat", "context", "budget", "exceed", "exhaust", "overflow", "toolong"),
            *("incomplete", "partial", "unfinished", "cutoff"),
        ),
    ),
)
# Reasons that say nothing. Without an answer, they are those of a server that did not run the model.
_NO_REASON = frozenset({"", "null", "none", "load", "unload", "unspecified"})
_PREFIX = re.compile(r"^(?:finish|stop|done)?reason(?=.)")
_SEPARATOR = re.compile(r"[:;,|.]")
_NO_LETTER = re.compile(r"[\W_]+")
_MAX_LENGTH = 200
_SHOWN = 300


def end_of(reason: str) -> AnswerEnd:
    """Return what the reason of a provider means. A reason that is not known is that of a complete answer.

    Case and punctuation do not matter. A reason can have parts with colons between them, of which the last one that
    is known counts.

    >>> end_of("MAX_TOKENS"), end_of("content_filter: hate"), end_of("error: MALFORMED_FUNCTION_CALL")
    (<AnswerEnd.CUT: 'length'>, <AnswerEnd.FILTERED: 'content_filter'>, <AnswerEnd.FAILED: 'error'>)
    """
    # Models of users return anything.
    return _end_of(str(reason or "")[:_MAX_LENGTH])


@lru_cache(maxsize=256)
def _end_of(reason: str) -> AnswerEnd:
    found = (end for name in reversed([*_names(reason)]) if (end := _end(name)) is not AnswerEnd.COMPLETE)
    return next(found, AnswerEnd.COMPLETE)


def neutral_reason(reason: str) -> str:
    """Return the name of a reason that is the same for all providers. An unknown reason keeps its name.

    >>> [neutral_reason(reason) for reason in ("end_turn", "tool_use", "max_tokens", "a new one")]
    ['stop', 'tool_calls', 'length', 'a new one']
    """
    end = end_of(reason)
    if end is not AnswerEnd.COMPLETE:
        return str(end.value)
    names = {*_names(reason)}
    if names & _CALLS:
        return "tool_calls"
    return "stop" if names & _STOPS else reason[:_MAX_LENGTH]


def checked(response: ModelResponse, model: str, *, keeps_filtered: bool = False) -> ModelResponse:
    """Return the response of a chat model with the neutral name of its reason.

    Args:
        response: The response as its client returns it.
        model: The label of the model, for messages.
        keeps_filtered: Whether the text that a filter left is used as an answer.

    Raises:
        ModelError: The answer failed (retryable), or was filtered (not retryable).
    """
    # Models of users return anything.
    reason = str(response.finish_reason or "")
    end = end_of(reason)
    if end is AnswerEnd.COMPLETE and not (response.tool_calls or response.verbatim or response.text.strip()):
        end = AnswerEnd.FAILED if {*_names(reason)} <= _NO_REASON else end
    if end is AnswerEnd.FAILED or end is AnswerEnd.FILTERED:
        _reject(response, model, end, reason, keeps_filtered=keeps_filtered)
    name = neutral_reason(reason)
    return response if name == response.finish_reason else replace(response, finish_reason=name)


def _reject(response: ModelResponse, model: str, end: AnswerEnd, reason: str, *, keeps_filtered: bool) -> None:
    """Raise :class:`ModelError` for a failed answer, and for a filtered one that is not used."""
    shown = " ".join(reason[:_MAX_LENGTH].split())
    if end is AnswerEnd.FAILED:
        raise ModelError(
            f"the answer of model {model} failed: the provider ended it with {shown!r} as the reason. If that repeats, "
            "check the provider's status and the schemas of the tools",
            retryable=True,
            finish_reason=end.value,
        )
    if not (keeps_filtered and response.text.strip() and not response.tool_calls):
        refusal = " ".join(response.text[:_SHOWN].split()) if "refus" in reason.casefold() else ""
        raise ModelError(
            f"the answer of model {model} was filtered: the provider ended it with {shown!r} as the reason"
            f"{f' ({refusal})' if refusal else ''}. Change the prompt or the filter, name a fallback, or set "
            "skills.model.on-incomplete to emit",
            rejects_request=True,
            finish_reason=end.value,
        )


def _names(reason: str) -> Iterator[str]:
    for part in _SEPARATOR.split(reason[:_MAX_LENGTH].casefold()):
        yield _PREFIX.sub("", _NO_LETTER.sub("", part))


def _end(name: str) -> AnswerEnd:
    exact = _EXACT.get(name)
    if exact is not None:
        return exact
    return next((end for end, words in _WORDS if any(word in name for word in words)), AnswerEnd.COMPLETE)
