"""Untrusted text on terminals: hidden characters are visible, and letters stay as they are."""

from __future__ import annotations

import pytest

from flink_skills.texts import printable, replace_hidden, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("red\x1b[31m\x00\x7f", "red<U+001B>[31m<U+0000><U+007F>"),
        ("a\u202eb\u200b\u2028", "a<U+202E>b<U+200B><U+2028>"),
        ("\ud800\ue000", "<U+D800><U+E000>"),
        ("a\u3164\u2800\u034f\U000e0041", "a<U+3164><U+2800><U+034F><U+E0041>"),
        ("日本語 🎉 é \u2764\ufe0f\u200d\U0001f525", "日本語 🎉 é \u2764\ufe0f\u200d\U0001f525"),
    ],
)
def test_hidden_characters_are_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_replacement_is_chosen_for_each_character() -> None:
    assert replace_hidden("a\u200bb\x07", lambda char: f"[{ord(char)}]") == "a[8203]b[7]"


def test_a_name_is_one_printable_line() -> None:
    assert printable("a\nb\x1bc é") == "a\ufffdb\ufffdc é"
    assert printable("a\nb\u200b", lambda char: ascii(char)[1:-1]) == "a\\nb\\u200b"
