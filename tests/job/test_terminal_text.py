"""What a terminal shows of other people's text."""

from __future__ import annotations

import pytest

from flink_skills.texts import visible


@pytest.mark.parametrize(
    "char", "\x1b\u202e\u034f\u115f\u1160\u17b4\u17b5\u180e\u2065\u2800\u3164\uffa0\U000e0100\U000e0fff"
)
def test_what_shows_nothing_is_written_as_its_code(char: str) -> None:
    assert visible(f"a{char}b") == f"a<U+{ord(char):04X}>b"


@pytest.mark.parametrize(
    "text",
    [
        "two\n\tlines",
        "\u2764\ufe0f\u200d\U0001f525 \U0001f468\u200d\U0001f469 1\ufe0f\u20e3 \U0001f44d\U0001f3fd",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u1820\u180b \ud55c\uae00 \u65e5\u672c",
    ],
    ids=["spaces", "emoji", "Persian", "Mongolian and East Asian"],
)
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text
