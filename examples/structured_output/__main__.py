"""Two invoices, and the output of an agent with skills: objects of a pydantic model.

python -m examples.structured_output
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from examples.structured_output.agent import InvoiceAgent, Verdict
from examples.structured_output.model import use_script
from flink_skills import AgentsExecutionEnvironment
from flink_skills.models import AssistantMessage, Message

SKILLS = Path(__file__).resolve().parent / "skills"
LINES = [{"article": "lamp", "count": 3, "price": 39.90}, {"article": "chair", "count": 1, "price": 89.00}]
INVOICES: list[dict[str, Any]] = [
    {"number": "R-17", "lines": LINES, "tax_percent": 19, "tax": 39.65, "total": 248.35},
    {"number": "R-18", "lines": LINES[:1], "tax_percent": 19, "tax": 22.74, "total": 124.24},
]


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.add_skills_from_paths([str(SKILLS)])
    output = env.from_list(INVOICES, "number").apply(InvoiceAgent)
    verdicts: list[Verdict] = output.to_list()
    errors = output.to_list("errors")
    if errors:
        print(f"structured_output: {errors[0]['error']}", file=sys.stderr)
        return 1

    table = Table("invoice", "right total", "problems", box=box.ROUNDED, title="What is emitted", title_justify="left")
    for verdict in verdicts:
        table.add_row(verdict.invoice, f"{verdict.total:.2f}", "; ".join(verdict.problems) or "none")
    Console().print(table)
    last = verdicts[-1]
    print(f"Conversation about {last.invoice}:")
    *_, conversation = (request.messages for request in model.requests if last.invoice in request.messages[0].content)
    for message in conversation:
        print(f"  {shown(message)}")
    print(f"  the model: {last.model_dump_json()}")
    return 0


def shown(message: Message) -> str:
    """A message in a line."""
    if isinstance(message, AssistantMessage):
        called = ", ".join(call.name for call in message.tool_calls)
        return f"the model: {called or message.content}"
    return f"it reads:  {shorten(message.content, 105)}"


if __name__ == "__main__":
    sys.exit(main())
