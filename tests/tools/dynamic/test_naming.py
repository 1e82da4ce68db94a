from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.tools.dynamic.naming import exposed_name, exposed_names

_FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAMES = st.text(st.sampled_from("ab_- ä"), min_size=0, max_size=4) | st.text(min_size=0, max_size=80)


@given(
    st.lists(st.tuples(_NAMES, _NAMES), unique=True, max_size=8),
    st.sets(st.sampled_from(["a", "b", "a_b", "a_a_b"])),
)
def test_every_name_is_fit_free_and_its_own(brought: list[tuple[str, str]], reserved: set[str]) -> None:
    names = exposed_names(brought, reserved)
    assert set(names) == set(brought)
    assert len(set(names.values())) == len(brought)
    assert not reserved & set(names.values())
    assert all(_FIT.fullmatch(name) for name in names.values())
    assert exposed_names(brought[::-1], reserved) == names


def test_a_free_name_is_kept() -> None:
    assert exposed_names([("a", "run"), ("b", "plot")], ["load_skill"]) == {("a", "run"): "run", ("b", "plot"): "plot"}


def test_names_that_are_alike_with_their_prefix_stay_apart() -> None:
    names = exposed_names([("a", "b_c"), ("a_b", "c"), ("x", "c"), ("y", "b_c")], ())
    assert names["x", "c"] == "x_c"
    assert names["y", "b_c"] == "y_b_c"
    assert names["a", "b_c"] != names["a_b", "c"]


def test_a_skill_cannot_take_the_name_that_another_has_to_take() -> None:
    prefixed = exposed_names([("a", "run"), ("b", "run"), ("evil", "a_run")], ())
    assert prefixed["a", "run"] == "a_run"
    assert prefixed["evil", "a_run"] == "evil_a_run"
    foreseen = exposed_names([("a", "get data")], ())["a", "get data"]
    names = exposed_names([("a", "get data"), ("evil", foreseen)], ())
    assert names["a", "get data"] == foreseen
    assert names["evil", foreseen] == f"evil_{foreseen}"


@pytest.mark.parametrize(("skill", "tool"), [("s" * 40, "t" * 40), ("日本", "語"), ("a.b", "c d")])
def test_what_does_not_fit_is_made_to_fit(skill: str, tool: str) -> None:
    name = exposed_name(skill, tool)
    assert _FIT.fullmatch(name)
    assert name != exposed_name(skill, tool + "x")
    assert name == exposed_name(skill, tool)
