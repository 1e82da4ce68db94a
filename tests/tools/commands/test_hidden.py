from __future__ import annotations

import json

from flink_skills.tools.commands import HiddenValues


def test_nothing_to_hide_changes_nothing() -> None:
    hidden = HiddenValues()
    assert hidden.in_text("abcd") == "abcd"
    assert hidden.in_bytes(b"\xff\0abcd") == b"\xff\0abcd"


def test_values_are_hidden_in_text_and_bytes() -> None:
    hidden = HiddenValues()
    hidden.add("a", "s3cr.t+")
    hidden.add("b", "grün-geheim")
    assert hidden.in_text("x=s3cr.t+&y=grün-geheim s3crxt+") == "x=[hidden]&y=[hidden] s3crxt+"
    assert hidden.in_bytes(b"\xff" + "grün-geheim\0".encode() + b"s3cr.t+") == b"\xff[hidden]\0[hidden]"


def test_a_value_that_begins_another_one_leaves_no_rest() -> None:
    hidden = HiddenValues()
    hidden.add("a", "token")
    hidden.add("b", "token-and-more")
    assert hidden.in_text("token-and-more token") == "[hidden] [hidden]"


def test_lines_of_a_key_and_what_json_makes_of_it() -> None:
    key = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0B\n}\n-----END KEY-----\n"
    hidden = HiddenValues()
    hidden.add("key", key)
    assert hidden.in_text(key) == "[hidden]"
    assert hidden.in_text(key.strip() + "!") == "[hidden]!"
    assert hidden.in_text("second: MIIEvAIBADANBgkqhkiG9w0B\r\n}") == "second: [hidden]\r\n}"
    assert hidden.in_text(json.dumps({"key": key})) == '{"key": "[hidden]"}'
    hidden.add("quoted", 'pa"ss\\wörd')
    for ascii_only in (True, False):
        assert hidden.in_text(json.dumps('pa"ss\\wörd', ensure_ascii=ascii_only)) == '"[hidden]"'


def test_short_values_stay() -> None:
    hidden = HiddenValues()
    for value in ("", "a", "abc", "  a  "):
        hidden.add(value, value)
    hidden.add("blanks", "     ")
    assert hidden.in_text("abc a") == "abc a"


def test_the_latest_values_of_each_name() -> None:
    hidden = HiddenValues()
    hidden.add("other", "stays-hidden")
    for number in range(20):
        hidden.add("token", f"value-{number:02}")
        hidden.add("token", f"value-{number:02}")
    assert hidden.in_text("value-11 value-12 value-19 stays-hidden") == "value-11 [hidden] [hidden] [hidden]"


def test_a_value_that_was_cut_in_two_is_hidden_as_well() -> None:
    hidden = HiddenValues()
    hidden.add("skills.env.report.TOKEN", "t0k3n-of-the-report")
    gap = b"\n[... 9 bytes left out ...]\n"
    assert hidden.in_bytes(b"it is t0k3n-of" + gap + b"-report and more", gap) == (
        b"it is [hidden]" + gap + b"[hidden] and more"
    )
    assert hidden.in_bytes(b"a t0k3n-of-the-report t0" + gap + b"t!", gap) == b"a [hidden] t0" + gap + b"t!"
    assert hidden.in_bytes(b"ends with t0k3n", gap) == b"ends with t0k3n"


def test_other_line_ends_hide_nothing_less() -> None:
    for key in ("long line of a key\nshort\n}", "long line of a key\r\nshort\r\n}\r\n"):
        hidden = HiddenValues()
        hidden.add("key", key)
        plain = key.replace("\r\n", "\n")
        for printed in (key, plain, plain.replace("\n", "\r\n"), key.replace("\n", "\r\n")):
            assert hidden.in_text(f"<{printed}>") == "<[hidden]>", repr(printed)
            assert hidden.in_bytes(printed.strip().encode()) == b"[hidden]", repr(printed)


def test_a_key_that_was_cut_in_two_is_hidden_with_its_short_lines() -> None:
    key = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0B\nSHORT==\n-----END KEY-----\n"
    hidden = HiddenValues()
    hidden.add("key", key)
    gap = b"...\n"
    for place in range(3, len(key) - 3):
        begin, end = key[:place].encode(), key[place:].encode()
        assert hidden.in_bytes(b"a " + begin + gap + end + b" b", gap) == b"a [hidden]" + gap + b"[hidden] b", place


def test_what_may_be_the_beginning_of_a_value() -> None:
    hidden = HiddenValues()
    hidden.add("a", "abcabc")
    hidden.add("b", "token")
    hidden.add("c", "token-and-more")
    for data, begun in {
        b"": 0,
        b"x ab": 0,
        b"x abc": 3,
        b"abcab": 5,
        b"abcabc": 0,
        b"abcabcabc": 3,
        b"a token": 5,
        b"a token-and-mor": 13,
        b"a token-and-more": 0,
        b"token!": 0,
    }.items():
        assert hidden.begun(data) == begun, data
