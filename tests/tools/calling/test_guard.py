"""What holds for every call of a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flink_skills import SkillConfig, Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools import FunctionTool, ToolSet
from flink_skills.tools.calling import Approval, ApprovalRequest, CallGuard, CallLimits


class Effect(Tool):
    """Notes its calls; fails as often as it is told to, and waits for what it is given."""

    def __init__(self, fails: int = 0, until: asyncio.Event | None = None, **limits: Any) -> None:
        self.calls: list[Mapping[str, Any]] = []
        self.running = self.most = 0
        self.begun = asyncio.Event()
        self._fails = fails
        self._until = until
        for key, value in limits.items():
            setattr(self, key, value)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("effect", "Has an effect.", {"type": "object", "properties": {}})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.calls.append(arguments)
        self.running += 1
        self.begun.set()
        self.most = max(self.most, self.running)
        try:
            if self._until is not None:
                await self._until.wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        if len(self.calls) <= self._fails:
            return ToolResult("no connection", is_error=True, retryable=True)
        return ToolResult("x" * 100, value=[1])


async def called(tool: Tool, options: Mapping[str, Any], approver: Any = None, **context: Any) -> ToolResult:
    tools = ToolSet([tool], CallGuard(SkillConfig(options), approver))
    return await tools.call("effect", {"a": 1}, ToolContext(**context))


def test_an_option_by_name_counts_before_the_tool_and_the_tool_before_the_option_for_all() -> None:
    options = {"skills.tool.timeout": "3 s", "skills.tool.max-output": 7, "skills.tool.max-concurrent.effect": 2}
    limits = CallLimits.of("effect", Effect(max_output=9, max_concurrent=5), SkillConfig(options))
    assert (limits.timeout, limits.max_output, limits.max_concurrent) == (3.0, 9, 2)
    assert CallLimits.of("other", Effect(max_concurrent=5), SkillConfig(options)).max_concurrent == 5


async def test_a_call_over_its_deadline_is_ended_and_says_so() -> None:
    tool = Effect(until=asyncio.Event())
    result = await called(tool, {"skills.tool.timeout.effect": "50 ms"})
    assert result.is_error
    assert "effect gave no result within 0.05 s" in result.content
    await asyncio.sleep(0)
    assert not tool.running


async def test_cancelling_a_turn_cancels_the_call() -> None:
    tool = Effect(until=asyncio.Event())
    task = asyncio.ensure_future(called(tool, {"skills.tool.timeout": "1 min"}))
    await tool.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not tool.running


async def test_a_long_result_is_cut_for_the_model_and_whole_for_code() -> None:
    result = await called(Effect(), {"skills.tool.max-output": 10})
    assert result.content == "x" * 10 + "\n[the result of effect has 100 characters; these are the first 10]"
    assert result.value == [1]


@pytest.mark.parametrize(("idempotent", "times"), [(True, 3), (False, 1)])
async def test_what_passes_is_tried_again_where_the_tool_allows_it(
    idempotent: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_skills.tools.calling.guard._FIRST_PAUSE", 0.001)
    tool = Effect(fails=2, idempotent=idempotent)
    result = await called(tool, {"skills.tool.retries": 3})
    assert len(tool.calls) == times
    assert result.is_error is not idempotent


async def test_other_errors_are_not_tried_again() -> None:
    said: list[int] = []

    def effect(a: int) -> str:
        said.append(a)
        raise ValueError("bad")

    result = await called(FunctionTool(effect), {"skills.tool.retries": 3})
    assert (result.is_error, said) == (True, [1])


@pytest.mark.parametrize(
    ("error", "passes"), [(ConnectionResetError("x"), True), (TimeoutError(), True), (ValueError(), False)]
)
async def test_which_exceptions_of_a_function_pass(error: Exception, passes: bool) -> None:
    def effect(a: int) -> str:
        raise error

    assert (await called(FunctionTool(effect), {})).retryable is passes


async def test_calls_at_once_are_limited_for_each_tool() -> None:
    until = asyncio.Event()
    tool = Effect(until=until)
    tools = ToolSet([tool], CallGuard(SkillConfig({"skills.tool.max-concurrent": 2})))
    tasks = [asyncio.ensure_future(tools.call("effect", {}, ToolContext())) for _ in range(5)]
    await tool.begun.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    until.set()
    await asyncio.gather(*tasks)
    assert (tool.most, len(tool.calls)) == (2, 5)


@pytest.mark.parametrize(
    ("idempotent", "option", "runs"),
    [(False, "refuse", False), (False, "repeat", True), (True, "refuse", True)],
)
async def test_a_call_that_may_have_been_made(idempotent: bool, option: str, runs: bool) -> None:
    tool = Effect(idempotent=idempotent)
    result = await called(tool, {"skills.tool.lost-calls.effect": option}, attempt=2)
    assert bool(tool.calls) is runs
    assert result.is_error is not runs
    if not runs:
        assert "may have been called with these arguments before the worker was lost" in result.content


class TestApproval:
    async def test_only_what_is_named_needs_a_yes(self) -> None:
        asked: list[ApprovalRequest] = []
        tool = Effect()
        await called(tool, {"skills.tools.approve": "other, x_*"}, asked.append)
        assert (len(tool.calls), asked) == (1, [])

    async def test_who_is_asked_gets_the_call(self) -> None:
        asked: list[ApprovalRequest] = []

        async def approve(request: ApprovalRequest) -> bool:
            asked.append(request)
            return True

        tool = Effect()
        result = await called(tool, {"skills.tools.approve": "eff*"}, approve, call_id="c", key="k", turn=3, model="m")
        assert not result.is_error
        assert asked == [ApprovalRequest("effect", {"a": 1}, agent="", key="k", turn=3, call_id="c", model="m")]

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            (False, "effect was not called: the call was not approved"),
            ("too dear", "effect was not called: the call was not approved: too dear"),
            (Approval(False, "no"), "effect was not called: the call was not approved: no"),
            (None, "effect was not called: the call was not approved: asking failed (TypeError)"),
            (1, "effect was not called: the call was not approved: asking failed (TypeError)"),
        ],
    )
    async def test_without_a_yes_nothing_is_called(self, answer: Any, told: str) -> None:
        tool = Effect()
        result = await called(tool, {"skills.tools.approve": "*"}, lambda request: answer)
        assert (result.is_error, result.content, tool.calls) == (True, told, [])

    async def test_other_arguments_may_be_approved(self) -> None:
        tool = Effect()
        await called(tool, {"skills.tools.approve": "*"}, lambda request: Approval(True, arguments={"a": 2}))
        assert tool.calls == [{"a": 2}]

    async def test_where_nobody_is_there_nothing_is_called(self) -> None:
        tool = Effect()
        assert "this job has no approver" in (await called(tool, {"skills.tools.approve": "*"})).content
        assert tool.calls == []
