"""A job of one agent that has something to count, and that goes on until a file is there."""

from __future__ import annotations

import argparse

from metered_agents import Metered  # type: ignore[import-not-found] # beside it
from pyflink.common import Configuration, Types
from pyflink.datastream import StreamExecutionEnvironment

from flink_skills import AgentsExecutionEnvironment, SkillOptions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="URL of the model")
    parser.add_argument("--skills", required=True, help="a folder of skills")
    parser.add_argument("--gate", required=True, help="the file that ends the job")
    parser.add_argument("--chats", type=int, required=True, help="how many events are chats")
    options = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(2)
    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    agents.add_skills_from_paths([options.skills])
    agents.get_config().set(SkillOptions.WORKER_PROCESSES, 2).set(SkillOptions.METRICS_INTERVAL, 0.2)
    agents.get_config().set(SkillOptions.SHELL_MIN_ISOLATION, "HYGIENE")
    events = env.from_collection(
        [*(f"chat {number}" for number in range(options.chats)), "fail", options.gate], Types.STRING()
    )
    keyed = agents.from_datastream(events, lambda event: event)
    keyed.apply(Metered(options.model, "metered")).to_datastream(Types.STRING()).print()
    agents.execute("metered")


if __name__ == "__main__":
    main()
