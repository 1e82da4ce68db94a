from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.errors import ConfigError
from flink_skills.tools import SkillState, load_effect, touch_effect, unload_effect


def after(*effects: dict[str, str]) -> SkillState:
    found = SkillState()
    for effect in effects:
        found.apply(effect)
    return found


def test_order_of_last_use() -> None:
    found = after(load_effect("a", "1"), load_effect("b", "2"), load_effect("c", "3"), touch_effect("a"))
    assert (found.names, found.last) == (["b", "c", "a"], "a")
    found.apply(unload_effect("a"))
    assert (found.names, found.last, "a" in found) == (["b", "c"], "c", False)


def test_loading_again_replaces_the_digest_and_comes_last() -> None:
    found = after(load_effect("a", "1"), load_effect("b", "1"), load_effect("a", "2"))
    assert (found.names, found.digest("a"), len(found)) == (["b", "a"], "2", 2)


def test_empty() -> None:
    assert (after().last, after().names, after().digest("a")) == (None, [], None)


def test_effects_on_skills_that_are_not_loaded_change_nothing() -> None:
    found = after(load_effect("a", "1"), touch_effect("b"), unload_effect("b"))
    assert found.names == ["a"]


@pytest.mark.parametrize("effect", [{}, {"op": "explode", "skill": "a"}, {"op": "load"}, {"op": "load", "skill": 3}])
def test_unknown_effects_are_refused(effect: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="effect"):
        after().apply(effect)


NAMES = st.text(min_size=1, max_size=3)
EFFECTS = st.one_of(
    st.builds(load_effect, NAMES, st.text(max_size=3)),
    st.builds(touch_effect, NAMES),
    st.builds(unload_effect, NAMES),
)


@given(st.lists(EFFECTS))
def test_survives_json(effects: list[dict[str, str]]) -> None:
    found = after(*effects)
    again = SkillState.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert again.names == found.names


def test_names_of_brought_tools_outlive_their_skill() -> None:
    found = after(
        load_effect("a", "1", bundled=[{"name": "run", "exposed": "run"}, {"name": "of an earlier release"}]),
        unload_effect("a"),
        load_effect("b", "1", bundled=[{"name": "run", "exposed": "run"}]),
    )
    found.clear()
    assert found.tool_names == {"run": ("a", "run")}
    again = SkillState.from_json(json.loads(json.dumps(found.to_json())))
    assert (again, again.tool_names) == (found, found.tool_names)
