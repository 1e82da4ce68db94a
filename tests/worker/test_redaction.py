from __future__ import annotations

from flink_skills.worker.redaction import Redactor


def test_hides_what_it_was_told() -> None:
    redactor = Redactor()
    assert redactor.redacted("abc") == "abc"
    redactor.hide(["abc", "", "abcdef"])
    assert redactor.redacted("abcdef abc") == "*** ***"


def test_passes_texts_through_what_knows_more_at_the_time() -> None:
    redactor = Redactor()
    known: list[str] = []

    def without_known(text: str) -> str:
        for value in known:
            text = text.replace(value, "[hidden]")
        return text

    redactor.pass_through(without_known)
    redactor.hide(["fixed"])
    assert redactor.redacted("fixed later") == "*** later"
    known.append("later")
    assert redactor.redacted("fixed later") == "*** [hidden]"
