"""Runs an agent over events in a Flink mini cluster of this process."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flink_skills.agents.keys import key_to_text
from flink_skills.agents.plan import AgentPlan
from flink_skills.cli.events import InputEvent
from flink_skills.errors import ConfigError, TurnError

__all__ = ["run_in_minicluster"]


def run_in_minicluster(
    prepare: Callable[[Any], AgentPlan],
    events: Sequence[InputEvent],
    flink_options: dict[str, str],
    parallelism: int,
    take: Callable[[dict[str, Any]], None],
) -> None:
    """Run the agent that ``prepare`` compiles; ``take`` gets each record as it comes.

    Raises:
        ConfigError: Flink is not installed.
        TurnError: the job failed; the message is that of the root cause.
    """
    try:
        from pyflink.common import Configuration
        from pyflink.datastream import StreamExecutionEnvironment
    except ImportError as error:
        raise ConfigError(
            "Flink is not installed: pip install 'flink-skills[flink]', or run with --local"
        ) from error
    from flink_skills.flink.environment import AgentsExecutionEnvironment
    from flink_skills.flink.failures import job_failure

    configuration = Configuration()
    for key, value in {"rest.port": "0", **flink_options}.items():
        configuration.set_string(key, value)
    with tempfile.TemporaryDirectory(prefix="flink-skills-run-") as folder:
        lines = Path(folder) / "events.txt"
        with lines.open("w", encoding="utf-8", newline="\n") as file:
            for event in events:
                file.write(f"{key_to_text(event.key)}\t{json.dumps(event.event, ensure_ascii=False)}\n")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
        plan = prepare(agents_env)
        if not events:
            return
        try:
            with agents_env.run_lines(plan, lines) as records:
                for record in records:
                    take(record)
        except Exception as error:
            message = job_failure(error)
            if message is None:
                raise
            raise TurnError(message) from error
