"""An agent and two programs: one asks three questions, the other runs until it is terminated.

python -m examples.interactive_script
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from examples.interactive_script.agent import TopicAgent
from examples.interactive_script.model import use_script
from flink_skills import AgentsExecutionEnvironment, SkillOptions
from flink_skills.models import AssistantMessage, Message, ToolCall, ToolMessage

SKILLS = Path(__file__).resolve().parent / "skills"


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.add_skills_from_paths([str(SKILLS)])
    env.get_config().set(SkillOptions.TOOLS, ["full"])
    output = env.from_list(["We need a topic for orders."]).apply(TopicAgent)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"interactive_script: {errors[0]['error']}", file=sys.stderr)
        return 1

    table = Table("the model calls", "what the program prints", "and then", box=box.ROUNDED, show_lines=True)
    for call, result in calls_of(model.requests[-1].messages):
        if result.name == "skill_load":
            continue
        said = json.loads(result.content)
        table.add_row(shown(call), said.get("output", "").strip(), state_of(said))
    Console().print(table)
    print(f"Answer: {answers[0]}")
    return 0


def calls_of(messages: Sequence[Message]) -> Iterable[tuple[ToolCall, ToolMessage]]:
    """The calls of a conversation with their results."""
    asked = [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    return zip(asked, results, strict=True)


def shown(call: ToolCall) -> str:
    """A call with the argument that matters."""
    arguments = {} if isinstance(call.arguments, str) else call.arguments
    return f"{call.name}\n{arguments.get('chars', arguments.get('command', ''))}".rstrip()


def state_of(said: Mapping[str, Any]) -> str:
    """What a result says of the program: what it waits for, or how it ended."""
    if "interaction" in said:
        return f"waits: {said['interaction']['kind']}"
    written = said.get("result", {}).get("primary_output")
    return f"{said['status']}\nwrote {written['name']}" if written else str(said["status"])


if __name__ == "__main__":
    sys.exit(main())
