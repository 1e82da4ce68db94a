from __future__ import annotations

from flink_skills.agents import Redactor


def test_hides_what_it_was_told() -> None:
    redactor = Redactor()
    assert redactor.redact("abc") == "abc"
    redactor.hide(["abc", "", "abcdef"])
    assert redactor.redact("abcdef abc") == "*** ***"


def test_hides_a_value_as_json_too() -> None:
    redactor = Redactor()
    redactor.hide(['a "quoted" value'])
    assert redactor.redact('{"text": "a \\"quoted\\" value"}') == '{"text": "[hidden]"}'


def test_passes_texts_through_what_knows_more_at_the_time() -> None:
    redactor = Redactor()
    known: list[str] = []

    def without_known(text: str) -> str:
        for value in known:
            text = text.replace(value, "[hidden]")
        return text

    redactor.add_filter(without_known, lambda text: 5 if text.endswith("later"[:3]) else 0)
    redactor.hide(["fixed"])
    assert redactor.redact("fixed later") == "*** later"
    known.append("later")
    assert redactor.redact("fixed later") == "*** [hidden]"
    assert redactor.secret_prefix_length("a fix") == 3
    assert redactor.secret_prefix_length("a fixed") == 0
    assert redactor.secret_prefix_length("it is lat") == 5
