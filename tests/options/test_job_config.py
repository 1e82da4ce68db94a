"""Options that the code of agents reads: all the job's, its custom keys too, and none can be changed."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

from flink_skills import ConfigError, SkillConfig, SkillOptions, UnknownNameError
from flink_skills.options import JobConfig


def read(options: dict[str, Any], key: Any, **more: Any) -> Any:
    return JobConfig(SkillConfig(options)).get(key, **more)


def test_the_table_of_descriptions_has_each_option() -> None:
    table = files("flink_skills.options").joinpath("descriptions.txt").read_text("utf-8").splitlines()[1:]
    keys = [option.key for option in SkillOptions.all()]
    keys += [family.prefix + family.names for family in SkillOptions.families()]
    assert sorted(line.partition(" | ")[0] for line in table) == sorted(keys)
    assert all(option.doc.endswith(".") for option in [*SkillOptions.all(), *SkillOptions.families()])


def test_options_are_read_by_constant_and_by_key() -> None:
    options = {"skills.turn.timeout": "2 min"}
    assert read(options, SkillOptions.TURN_TIMEOUT) == read(options, "skills.turn.timeout") == 120.0
    assert read(options, SkillOptions.TURN_MAX_STEPS) == 50


@pytest.mark.parametrize(
    ("value", "found"),
    [("5", "5"), (5, "5"), (2.5, "2.5"), (True, "true"), (["a", "b"], '["a", "b"]'), ({"é": 1}, '{"é": 1}'), ("", "")],
)
def test_a_custom_key_has_a_string_as_in_flink(value: Any, found: str) -> None:
    assert read({"skills.user.a.b": value}, "skills.user.a.b") == found


@pytest.mark.parametrize("value", [None, object(), {"a": object()}])
def test_another_value_is_rejected_and_not_shown(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"option skills\.user\.a: write a string, a number") as caught:
        SkillConfig({"skills.user.a": value})
    assert "object at" not in str(caught.value)


def test_a_custom_key_that_is_not_set_is_an_error_with_near_names() -> None:
    with pytest.raises(UnknownNameError, match=r"skills\.user\.limits.*did you mean 'skills\.user\.limit'"):
        read({"skills.user.limit": 1}, "skills.user.limits")
    with pytest.raises(UnknownNameError, match="pass default="):
        read({}, "skills.user.limit")
    with pytest.raises(UnknownNameError, match=r"did you mean 'skills\.turn\.timeout'"):
        read({}, "skills.turn.timout")
    assert read({}, "skills.user.limit", default=None) is None
    assert read({"skills.user.limit": 1}, "skills.user.limit", default=None) == "1"


@pytest.mark.parametrize("key", ["skills.user.", "skills.user.a..b", "skills.user.a."])
def test_a_custom_key_has_a_name(key: str) -> None:
    with pytest.raises(ConfigError, match=r"write skills\.user\.<name>"):
        SkillConfig({key: "x"})


def test_a_custom_key_without_the_prefix_is_an_error_with_the_right_form() -> None:
    with pytest.raises(UnknownNameError, match=r"write a custom key as skills\.user\.<name>"):
        SkillConfig({"tenantlimit": 1})


def test_the_view_does_not_change_with_the_configuration_of_the_client() -> None:
    config = SkillConfig({"skills.user.a": "1"})
    view = JobConfig(config)
    config.set("skills.user.a", "2")
    assert view.get("skills.user.a") == "1"
    with pytest.raises(AttributeError):
        view.set("skills.user.a", "3")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        view.more = 1  # type: ignore[attr-defined]
