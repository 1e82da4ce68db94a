"""Prompt: two fields, and a string."""

import copy
import json
import pickle

import pytest

from flink_skills import Prompt
from flink_skills.prompts import event_text, to_plain

BOTH = Prompt(system="Be brief.", user="Is {city} large?")


def test_a_prompt_is_the_string_of_its_instructions() -> None:
    prompt = Prompt("Be brief.")
    assert isinstance(prompt, str)
    assert prompt == "Be brief."
    assert "Be brief." == prompt  # noqa: SIM300 - the order is what is tested
    assert not prompt != "Be brief."  # noqa: SIM202 - the operator is what is tested
    assert prompt != "Other."
    assert ("brief" in prompt, prompt.upper(), prompt + "!") == (True, "BE BRIEF.", "Be brief.!")
    assert f"{prompt}|{prompt!s}" == "Be brief.|Be brief."
    assert type(str(prompt)) is str
    assert json.dumps({"p": BOTH}) == '{"p": "Be brief."}'
    by_text: dict[str, int] = {prompt: 1}
    assert by_text["Be brief."] == 1


def test_two_prompts_are_equal_in_both_fields() -> None:
    assert Prompt("Be brief.", "Is {city} large?") == BOTH
    assert hash(Prompt("Be brief.", "Is {city} large?")) == hash(BOTH)
    assert Prompt("Be brief.", "Other {city}?") != BOTH
    assert BOTH != "Be brief."
    assert Prompt.from_text("Be brief.") == Prompt("Be brief.")
    assert BOTH != 3


def test_a_prompt_does_not_change() -> None:
    for name in ("system", "user", "other"):
        with pytest.raises(AttributeError):
            setattr(BOTH, name, "x")


@pytest.mark.parametrize("prompt", [BOTH, Prompt(), Prompt(user="{event}")])
def test_copies_and_pickles_have_both_fields(prompt: Prompt) -> None:
    for again in (pickle.loads(pickle.dumps(prompt)), copy.copy(prompt), copy.deepcopy(prompt)):
        assert (type(again), again.system, again.user) == (Prompt, prompt.system, prompt.user)
    assert repr(prompt) == f"Prompt(system={prompt.system!r}, user={prompt.user!r})"


def test_an_empty_prompt_is_false() -> None:
    assert not Prompt()
    assert Prompt(user="{event}")


def test_a_prompt_in_an_event_is_text() -> None:
    assert to_plain({"p": BOTH}) == {"p": "Be brief."}
    assert event_text({"p": Prompt("x")}) == '{"p": "x"}'
    assert event_text(BOTH) is BOTH


def test_the_user_message() -> None:
    assert BOTH.render_user({"city": "{event}"}) == "Is {event} large?"
    assert Prompt("x").render_user({"a": 1}) == '{"a": 1}'
