"""One agent, two customers: which tools each of them has.

python -m examples.toolsets
"""

from __future__ import annotations

import json
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from examples.toolsets.agent import Shop, ShopTools
from examples.toolsets.model import use_script
from flink_skills import AgentsExecutionEnvironment
from flink_skills.models import ToolMessage


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    events = [{"customer": "ada", "text": "What is tea?"}, {"customer": "bob", "text": "What is tea?"}]
    output = env.from_list(events, "customer").apply(Shop)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"toolsets: {errors[0]['error']}", file=sys.stderr)
        return 1
    table = Table("customer", "tools", "answer to 'discount'", "answer", box=box.ROUNDED, show_lines=True)
    # Turns of different keys run at the same time.
    last = {json.loads(request.messages[0].content)["customer"]: request for request in model.requests}
    for event, answer in zip(events, answers, strict=True):
        request = last[event["customer"]]
        told = [message.content for message in request.messages if isinstance(message, ToolMessage)]
        table.add_row(event["customer"], ", ".join(spec.name for spec in request.tools), told[1], answer)
    Console().print(table)
    print(f"The tool set was {' and '.join(ShopTools.log)}.")
    print(f"System prompt of each model: {model.requests[0].system.splitlines()[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
