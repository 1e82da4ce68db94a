"""Arguments as far as they are written: whatever a model writes, there is an object to look at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flink_skills.tools import StreamedArguments


def arguments(text: str) -> Any:
    return StreamedArguments("tool", "call-1", text, text).arguments


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", {}),
        ('{"te', {}),
        ('{"text": "Dear', {"text": "Dear"}),
        ('{"text": "a\\', {"text": "a"}),
        ('{"n": 12', {"n": 12}),
        ('{"list": [1, {"x": tr', {"list": [1, {}]}),
        ('{"text": "done"}', {"text": "done"}),
        ("[1, 2", {}),
        ("no JSON", {}),
        ('{"a":' * 5000, {}),
        ('{"text": "half \ud83d', {"text": "half \ufffd"}),
    ],
    ids=str,
)
def test_the_part_that_can_be_read_is_there(text: str, known: Any) -> None:
    assert arguments(text) == known


def test_each_beginning_of_a_text_can_be_read() -> None:
    whole = {"to": "ann", "text": 'a "b"\n\u00e9 🎉', "lines": [1.5, None, {"deep": True}]}
    for written in (json.dumps(whole), json.dumps(whole, ensure_ascii=False)):
        for end in range(len(written)):
            assert set(arguments(written[:end])) <= set(whole)
        assert arguments(written) == whole
