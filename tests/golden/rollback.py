"""A job with unfinished events that have no session, for this release and for earlier ones.

``python rollback.py SAVEPOINT GATE`` restores it with the release on the path, and prints each output. The file imports
only names that all releases have.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment

__all__ = ["EVENTS", "Held"]

# The second event waits behind the first.
EVENTS = (("a", "held"), ("a", "second"), ("b", "held"))


class Held(Agent):
    """An agent whose turns continue when a file exists. Each creates a file with the key when it starts."""

    name = "held"

    def __init__(self, gate: str) -> None:
        self.gate = gate

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        Path(f"{self.gate}.{event['key']}").touch()
        while not Path(self.gate).exists():  # noqa: ASYNC110 - another process creates the file
            await asyncio.sleep(0.05)
        return f"output {event['key']} {event['text']} {ctx.turn}"


def main(savepoint: str, gate: str) -> None:
    """Restore a savepoint and print the outputs."""
    from pyflink.common import Configuration, Types
    from pyflink.datastream import StreamExecutionEnvironment

    options = {
        "execution.state-recovery.path": Path(savepoint).as_uri(),
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "python.executable": sys.executable,
        "rest.port": "0",
        "skills.worker.processes": "1",
    }
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    row = Types.ROW_NAMED(["key", "text"], [Types.STRING(), Types.STRING()])
    stream = env.from_collection([("c", "new")], row).uid("new events")
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    with agents.from_datastream(stream, "key").apply(Held(gate)).to_datastream().execute_and_collect() as outputs:
        for output in outputs:
            print(output, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
