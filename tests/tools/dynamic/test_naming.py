"""Examines the internals of tools.dynamic.active on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.tools import MAX_TOOL_NAMES, SkillState, load_effect, unload_effect
from flink_skills.tools.dynamic.active import brought_names, exposed_name, named_specs

_FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SKILLS = st.sampled_from(["a", "b", "a_b", "a b", "s" * 64])
_TOOLS = st.lists(st.sampled_from(["run", "b_run", "a_run", "b_c", "c", "c d", "t" * 64]), unique=True, max_size=4)


def load(
    state: SkillState, skill: str, tools: Sequence[str], reserved: Collection[str] = (), others: Collection[str] = ()
) -> dict[str, str]:
    """The names that the tools get with a load of their skill."""
    specs = named_specs(skill, [{"name": tool} for tool in tools], state, reserved, others)
    state.apply(load_effect(skill, "1", bundled=specs))
    return {str(spec["name"]): str(spec["exposed"]) for spec in specs}


@pytest.mark.row("C11")
@given(st.lists(st.tuples(_SKILLS, _TOOLS, st.booleans()), max_size=8), st.sets(st.sampled_from(["run", "a_run", "c"])))
def test_a_name_is_fit_and_never_means_two_tools(steps: list[tuple[str, list[str], bool]], reserved: set[str]) -> None:
    state, meanings = SkillState(), dict[str, tuple[str, str]]()
    for skill, tools, is_load in steps:
        if is_load:
            load(state, skill, tools, reserved, ["a", "b"])
        else:
            state.apply(unload_effect(skill))
        state = SkillState.from_json(json.loads(json.dumps(state.to_json())))
        names = brought_names(state, state, reserved)
        assert len(set(names.values())) == len(names)
        for of, name in names.items():
            assert _FIT.fullmatch(name) and name not in reserved
            assert meanings.setdefault(name, of) == of
            assert state.tool_names[name] == of


def test_a_free_name_is_kept_and_a_given_one_is_not_given_again() -> None:
    state = SkillState()
    assert load(state, "a", ["run", "load_skill"], ["load_skill"]) == {"run": "run", "load_skill": "a_load_skill"}
    state.apply(unload_effect("a"))
    assert load(state, "b", ["run"]) == {"run": "b_run"}
    state.clear()
    assert load(state, "b", ["run", "plot"]) == {"run": "b_run", "plot": "plot"}
    assert load(state, "a", ["run"]) == {"run": "run"}


def test_names_that_are_alike_with_their_prefix_stay_apart() -> None:
    state = SkillState()
    assert load(state, "a", ["b_c"], ["b_c", "c"]) == {"b_c": "a_b_c"}
    assert load(state, "a_b", ["c"], ["b_c", "c"])["c"].startswith("a_b_c_")


def test_a_skill_cannot_pass_its_tool_off_as_one_of_another_skill() -> None:
    state = SkillState()
    assert load(state, "evil", ["a_run", "run"], others=["a", "evil"]) == {"a_run": "evil_a_run", "run": "run"}
    assert load(state, "a", ["run"], others=["a", "evil"]) == {"run": "a_run"}


def test_of_one_skill_the_own_names_come_first() -> None:
    assert load(SkillState(), "a", ["run", "a_run"], ["run"])["a_run"] == "a_run"


def test_a_name_that_the_job_took_later_is_the_jobs() -> None:
    state = SkillState()
    load(state, "a", ["run"])
    assert brought_names(state, ["a"], ["run"]) == {("a", "run"): "a_run"}
    assert load(state, "b", ["a_run"], ["run"])["a_run"] != "a_run", "it is in use"
    assert brought_names(state, ["a"], ()) == {("a", "run"): "run"}


def test_a_session_of_an_earlier_release_has_no_names_yet() -> None:
    state = SkillState()
    for skill in ("a", "b"):
        state.apply(load_effect(skill, "1", bundled=[{"name": "run"}]))
    assert state.tool_names == {}
    assert brought_names(state, state, ()) == {("a", "run"): "run", ("b", "run"): "b_run"}
    assert load(state, "c", ["run"]) == {"run": "c_run"}


def test_what_is_remembered_has_a_limit_and_names_stay_apart_beyond() -> None:
    state, meanings = SkillState(), dict[str, tuple[str, str]]()
    numbers = count()
    while len(state.tool_names) < MAX_TOOL_NAMES:
        skill = f"s{next(numbers)}"
        for tool, name in load(state, skill, [f"t{number}" for number in range(60)]).items():
            assert meanings.setdefault(name, (skill, tool)) == (skill, tool)
        state.apply(unload_effect(skill))
    kept = dict(state.tool_names)
    for skill in ("x", "y"):
        (name,) = load(state, skill, ["later"]).values()
        assert name.startswith(f"{skill}_later_")
        assert load(state, skill, ["later"]) == {"later": name}
        state.apply(unload_effect(skill))
    assert state.tool_names == kept
    assert load(state, "s0", ["t1"]) == {"t1": "t1"}


@pytest.mark.parametrize(("skill", "tool"), [("s" * 40, "t" * 40), ("日本", "語"), ("a.b", "c d")])
def test_what_does_not_fit_is_made_to_fit(skill: str, tool: str) -> None:
    name = exposed_name(skill, tool)
    assert _FIT.fullmatch(name)
    assert name != exposed_name(skill, tool + "x")
    assert name == exposed_name(skill, tool)
