"""Runs one short job after the other: with an agent that leaves a daemon, or the same with PyFlink alone."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from daemon_agents import LeavesDaemon  # type: ignore[import-not-found] # beside it
from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

from flink_skills import AgentsExecutionEnvironment, SkillOptions

EVENTS = 4
ROW = Types.ROW_NAMED(["id"], [Types.STRING()])


def shown(event: Any) -> str:
    return str(event["id"])


def run_with_pyflink(files: list[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    for file in files:
        env.add_python_file(file)
    events = env.from_collection([Row(f"k{number}") for number in range(EVENTS)], ROW)
    events.key_by(lambda event: event["id"], Types.STRING()).map(shown, Types.STRING()).print()
    env.execute("with PyFlink")


def run_with_agent() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    events = env.from_collection([Row(f"k{number}") for number in range(EVENTS)], ROW)
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    agents.get_config().set(SkillOptions.WORKER_PROCESSES, 1)
    agents.from_datastream(events, "id").apply(LeavesDaemon()).to_datastream(Types.STRING()).print()
    agents.execute("with an agent")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("agent", "pyflink"))
    parser.add_argument("times", type=int)
    parser.add_argument("--file", action="append", default=[], help="a file that goes with the job")
    options = parser.parse_args(sys.argv[1:])
    for _ in range(options.times):
        if options.kind == "agent":
            run_with_agent()
        else:
            run_with_pyflink(options.file)


if __name__ == "__main__":
    main()
