"""A desk and the agents that it calls: each request to a model, with its agent and its last message.

python -m examples.agent_tools
"""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.agent_tools.agents import Desk
from examples.agent_tools.model import use_script, who
from flink_skills import AgentsExecutionEnvironment


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    output = env.from_list(["Where is my order 17?"]).apply(Desk)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"agent_tools: {errors[0]['error']}", file=sys.stderr)
        return 1
    table = Table("agent", "tools", "reads", box=box.ROUNDED, show_lines=True)
    for request in model.requests:
        tools = ", ".join(spec.name for spec in request.tools)
        table.add_row(who(request), tools, Text(request.messages[-1].content.splitlines()[0]))
    Console().print(table)
    [found] = answers
    print(f"Answer: {found['answer']}")
    print(f"State of the desk: looked_up = {found['looked_up']}; {found['requests']} requests to models")
    return 0


if __name__ == "__main__":
    sys.exit(main())
