"""A turn that is too large to be sent to a worker again fails, and says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills import Agent, SkillConfig
from flink_skills.agents import TurnStatus
from flink_skills.errors import ConfigError
from tests.kit.agents import OpenAgent

LARGE = "x" * 3000


class Large(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        if event == "step":
            return len(await ctx.step("load", lambda: LARGE))
        if event == "steps":
            for number in range(9):
                await ctx.step(f"load{number}", lambda: LARGE[:400])
        if event == "state":
            ctx.state["text"] = LARGE
        return "done"


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ("step", "step step:load#0 returned 3,0"),
        ("steps", "and with it the journal of the turn has more than skills.turn.max-size = 2,048"),
        ("state", "the state and the conversations of the key have 3,0"),
    ],
)
async def test_what_is_too_large_fails_the_turn(open_agent: OpenAgent, event: str, problem: str) -> None:
    bench = await open_agent(Large, **{"skills.turn.max-size": "2 kb"})
    outcome = await bench.turn(event)
    assert outcome.status == TurnStatus.FAILED
    assert problem in outcome.message
    assert (await bench.turn("well")).status == TurnStatus.DONE


def test_the_limit_has_a_limit() -> None:
    with pytest.raises(ConfigError, match="write a size of 1 to 67108864 bytes"):
        SkillConfig({"skills.turn.max-size": "1 gb"})
