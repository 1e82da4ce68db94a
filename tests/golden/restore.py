"""A job that goes on from a golden savepoint with some more events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.flink.skill_files import write_skill

__all__ = ["SAVEPOINTS", "restored", "write_skills"]

SAVEPOINTS = Path(__file__).resolve().parent / "savepoints"


def write_skills(folder: Path) -> str:
    """The skill that the kept conversations have loaded."""
    write_skill(folder / "skills", "notes", description="Takes notes.", body="Write it down.")
    return str(folder / "skills")


def restored(agent: Any, savepoint: Path, events: list[tuple[str, str, str]], options: dict[str, str]) -> list[Any]:
    """What the agent emits from its savepoint on: what was under way, then the events (key, conversation, text)."""
    from pyflink.common import Types

    from flink_skills import AgentsExecutionEnvironment
    from tests.flink.running import collect, flink_environment

    env = flink_environment(
        {
            "execution.state-recovery.path": savepoint.as_uri(),
            # The source of the job was another one.
            "execution.state-recovery.ignore-unclaimed-state": "true",
            **options,
        }
    )
    row = Types.ROW_NAMED(["key", "chat", "text"], [Types.STRING()] * 3)
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    # An id of its own: Flink would take a source without one for that of the savepoint, which was another one.
    source = env.from_collection(events, row).uid("new events")
    output = agents.from_datastream(source, "key").apply(agent)
    return collect(output.to_datastream(), output.to_datastream(tag="errors"))
