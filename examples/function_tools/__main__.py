"""An agent with functions as tools: the specification of one for the model, each call, and its result.

python -m examples.function_tools
"""

from __future__ import annotations

import json
import logging
import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.function_tools.agent import Shop
from examples.function_tools.model import use_script
from flink_skills import AgentsExecutionEnvironment
from flink_skills.models import AssistantMessage, ToolMessage
from flink_skills.testing import ScriptedModel


def main() -> int:
    # The worker's log has each exception of a tool with its place; here its result counts.
    logging.getLogger("flink_skills.tools").addHandler(logging.NullHandler())
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    events = [{"customer": "c7", "text": "Two packs of tea to Ulm, please. What is that in euro?"}]
    output = env.from_list(events, "customer").apply(Shop)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"function_tools: {errors[0]['error']}", file=sys.stderr)
        return 1
    price = next(spec for spec in model.requests[0].tools if spec.name == "price")
    print(f"{price.name}: {price.description}\n{json.dumps(price.parameters)}")
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
