"""The reasons that providers publish, and what each means."""

from __future__ import annotations

import pytest

from flink_skills.models import AnswerEnd, end_of, neutral_reason

# The published reasons of each API.
REASONS = {
    "OpenAI": {
        "stop": "COMPLETE",
        "tool_calls": "COMPLETE",
        "function_call": "COMPLETE",
        "length": "CUT",
        "content_filter": "FILTERED",
    },
    "Responses": {
        "incomplete": "CUT",
        "incomplete: max_output_tokens": "CUT",
        "incomplete: content_filter": "FILTERED",
        "failed": "FAILED",
        "cancelled": "FAILED",
    },
    "Anthropic": {
        "end_turn": "COMPLETE",
        "stop_sequence": "COMPLETE",
        "tool_use": "COMPLETE",
        "compaction": "COMPLETE",
        "max_tokens": "CUT",
        "model_context_window_exceeded": "CUT",
        "refusal": "FILTERED",
        "pause_turn": "PAUSED",
    },
    "Gemini": {
        "STOP": "COMPLETE",
        "FINISH_REASON_UNSPECIFIED": "COMPLETE",
        "MAX_TOKENS": "CUT",
        **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "FILTERED"),
        **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "MODEL_ARMOR"), "FILTERED"),
        **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"), "FAILED"),
        **dict.fromkeys(("OTHER", "NO_IMAGE", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"), "FAILED"),
        "content_filter: PROHIBITED_CONTENT": "FILTERED",
        "function_call_filter: MALFORMED_FUNCTION_CALL": "FAILED",
        "FinishReason.MAX_TOKENS": "CUT",
    },
    "OpenRouter": {
        "error": "FAILED",
        "error: MALFORMED_FUNCTION_CALL": "FAILED",
        "error: SAFETY": "FILTERED",
        "stop: MAX_TOKENS": "CUT",
    },
    "DeepSeek": {"insufficient_system_resource": "FAILED"},
    "GLM": {"sensitive": "FILTERED", "network_error": "FAILED"},
    "Mistral": {"model_length": "CUT"},
    "vLLM": {"abort": "FAILED", "repetition": "CUT"},
    "Ollama": {"load": "COMPLETE", "unload": "COMPLETE"},
    "TGI": {"eos_token": "COMPLETE", "max_new_tokens": "CUT"},
    "states": {"in_progress": "FAILED", "queued": "FAILED", "max_time": "CUT", "budget_exceeded": "CUT"},
    "watsonx": {"not_finished": "CUT", "time_limit": "CUT", "token_limit": "CUT"},
    "xAI": {
        "REASON_STOP": "COMPLETE",
        "REASON_MAX_LEN": "CUT",
        "REASON_MAX_CONTEXT": "CUT",
        "REASON_TIME_LIMIT": "CUT",
    },
    "Cohere": {
        "COMPLETE": "COMPLETE",
        "TOOL_CALL": "COMPLETE",
        "ERROR_TOXIC": "FILTERED",
        "ERROR_LIMIT": "CUT",
        "USER_CANCEL": "FAILED",
        "TIMEOUT": "FAILED",
    },
    "Bedrock": {
        "guardrail_intervened": "FILTERED",
        "content_filtered": "FILTERED",
        "malformed_model_output": "FAILED",
        "malformed_tool_use": "FAILED",
    },
    "unknown": {"": "COMPLETE", "null": "COMPLETE", "a_new_one": "COMPLETE", "invalid": "COMPLETE"},
}
ALL = [(reason, end) for reasons in REASONS.values() for reason, end in reasons.items()]


@pytest.mark.parametrize(("reason", "end"), ALL)
def test_a_reason_has_one_end_in_each_spelling(reason: str, end: str) -> None:
    camel = "".join(word.capitalize() for word in reason.split("_"))
    for spelling in (reason, reason.upper(), reason.lower(), reason.replace("_", "-"), reason.replace("_", " "), camel):
        assert end_of(spelling) is AnswerEnd[end], spelling


@pytest.mark.parametrize(("reason", "end"), ALL)
def test_the_neutral_name_has_the_same_end(reason: str, end: str) -> None:
    assert end_of(neutral_reason(reason)) is AnswerEnd[end]
    assert neutral_reason(neutral_reason(reason)) == neutral_reason(reason)


def test_the_names_of_complete_answers() -> None:
    names = ("end_turn", "COMPLETE", "tool_use", "toolCall", "a_new_one", "", "x" * 300)
    assert [*map(neutral_reason, names)] == ["stop", "stop", "tool_calls", "tool_calls", "a_new_one", "", "x" * 200]
