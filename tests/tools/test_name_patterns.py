"""Names and patterns of tools and skills."""

from __future__ import annotations

import pytest

from flink_skills.tools.name_patterns import KnownNames, NameUse, hint, matches, resolve, starts_match

REFUNDS = frozenset({"pay_refund", "price", "shop_get_weather"})


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("pay_refnd", "Did you mean 'pay_refund'?"),
        ("pay-refund", "Did you mean 'pay_refund'?"),
        ("PayRefund", "Did you mean 'pay_refund'?"),
        ("refund_pay", "Did you mean 'pay_refund'?"),
        ("pay_refnd*", "Did you mean 'pay_refund'?"),
        ("get_weather", "Did you mean 'shop_get_weather'?"),
        ("zzz", "Tools: pay_refund, price, shop_get_weather."),
        ("*zzz*", "Tools: pay_refund, price, shop_get_weather."),
    ],
)
def test_a_name_that_matches_nothing_is_an_error_with_near_names(pattern: str, near: str) -> None:
    match = resolve(NameUse("approve_tools", pattern), "agent 'refunds'", [KnownNames(REFUNDS)])
    assert match.is_error
    assert match.problem == f"approve_tools: {pattern!r} matches no tool of agent 'refunds'. {near}"
    assert match.reason == f"{pattern!r} matches no tool of agent 'refunds'. {near}"


def test_a_pattern_is_shown_with_the_names_that_it_matches() -> None:
    match = resolve(NameUse("approve_tools", "p*"), "agent 'refunds'", [KnownNames(REFUNDS)])
    assert (match.names, str(match)) == (("pay_refund", "price"), "approve_tools: p* (pay_refund, price)")
    exact = resolve(NameUse("option x", "price", is_exact=True), "agent 'refunds'", [KnownNames(REFUNDS)])
    assert str(exact) == "option x: price"


def test_an_exact_name_is_no_pattern() -> None:
    match = resolve(NameUse("option x", "p*", is_exact=True), "agent 'refunds'", [KnownNames(REFUNDS)])
    assert match.problem.startswith("option x: 'p*' is no tool of agent 'refunds'.")


def test_what_can_bring_the_name_later_makes_it_a_warning() -> None:
    known = KnownNames(REFUNDS, lambda use: ["MCP server 'shop'"] if use.pattern.startswith("shop_") else [])
    match = resolve(NameUse("approve_tools", "shop_pay"), "agent 'a'", [known])
    assert (match.names, match.is_error) == ((), False)
    assert "matches no tool of agent 'a' yet. MCP server 'shop' can bring it later." in match.problem
    assert resolve(NameUse("approve_tools", "pay"), "agent 'a'", [known]).is_error


def test_one_of_several_agents_has_the_name() -> None:
    known = [KnownNames(REFUNDS), KnownNames(frozenset({"Write"}))]
    assert resolve(NameUse("option x", "Write"), "the agents 'a', 'b'", known).names == ("Write",)


@pytest.mark.parametrize(
    ("pattern", "prefix", "expected"),
    [
        ("shop_price", "shop_", True),
        ("shop_", "shop_", False),
        ("price", "shop_", False),
        ("price", "", True),
        ("sh*", "shop_", True),
        ("shop_p*", "shop_", True),
        ("mcp_*", "shop_", False),
        ("[ab]*", "shop_", True),
    ],
)
def test_whether_a_name_with_a_prefix_can_match(pattern: str, prefix: str, expected: bool) -> None:
    assert starts_match(pattern, prefix) is expected


def test_patterns_compare_the_case() -> None:
    assert matches("files_Write", ["files_*"])
    assert not matches("files_write", ["files_W*"])


def test_hints_name_few_of_many_names_and_nothing_for_none() -> None:
    assert hint("zzz", [f"tool_{number:02}" for number in range(20)]).endswith("tool_11 and 8 more.")
    assert hint("report", [], "skill") == "There is no skill."
