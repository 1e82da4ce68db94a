"""An agent with tools of LangChain: each call, and its result.

python -m examples.langchain_tools
"""

from __future__ import annotations

import json
import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.langchain_tools.agent import Shop
from examples.langchain_tools.model import use_script
from flink_skills import AgentsExecutionEnvironment
from flink_skills.models import AssistantMessage, ToolMessage
from flink_skills.testing import ScriptedModel


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    events = [{"customer": "c7", "text": "When is my order sent, and what is it in euro?"}]
    output = env.from_list(events, "customer").apply(Shop)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"langchain_tools: {errors[0]['error']}", file=sys.stderr)
        return 1
    show(model)
    print(f"Answer: {answers[0]}")
    return 0


def show(model: ScriptedModel) -> None:
    """What was called, and what came of it."""
    messages = model.requests[-1].messages
    asked = [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    table = Table("tool", "arguments", "result", box=box.ROUNDED, show_lines=True)
    for call, result in zip(asked, results, strict=True):
        table.add_row(call.name, Text(json.dumps(call.arguments)), Text(result.content))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
