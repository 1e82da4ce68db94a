"""Events that are much larger than others: they pass, on streams and as rows of tables, and other events go on."""

from __future__ import annotations

from typing import Any

import pytest
from pyflink.common import Row, Types

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment
from tests.flink.running import collect, flink_environment

pytestmark = pytest.mark.flink

MIB = 1 << 20
SIZES = (10, 20 * MIB, 11)


class Measures(Agent):
    """Says how long a text is, and keeps the text."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        sizes = [*ctx.state.get("sizes", []), len(event["text"])]
        ctx.state["sizes"] = sizes
        return {"agent": self.name, "key": ctx.key, "sizes": sizes}


def row(number: int) -> Row:
    return Row("same", "x" * SIZES[number])


def test_an_event_of_20_mb_passes_on_a_stream_and_as_a_row_of_a_table() -> None:
    env = flink_environment({"skills.shell.enabled": "false"})
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    tables = agents.table_environment()
    given = env.from_collection(list(range(len(SIZES))), Types.INT()).map(
        row, output_type=Types.ROW_NAMED(["name", "text"], [Types.STRING(), Types.STRING()])
    )
    inputs = {
        "java": agents.from_datastream(given, "name"),
        "python": agents.from_datastream(given, lambda event: event[0]),
        "table": agents.from_table(tables.from_data_stream(given), "name"),
    }
    outputs = [of.apply(Measures(name)) for name, of in inputs.items()]
    records = collect(*(output.to_datastream(tag=tag) for output in outputs for tag in ("", "errors")))
    for name in inputs:
        told = [record["sizes"] for record in records if record.get("agent") == name]
        assert told == [list(SIZES[: count + 1]) for count in range(len(SIZES))], name
    assert len(records) == len(inputs) * len(SIZES)
