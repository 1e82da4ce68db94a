"""An agent that corrects a small program: each call of a file tool, and its result.

python -m examples.file_tools
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.file_tools.agent import ShopDoctor
from examples.file_tools.model import use_script
from flink_skills import AgentsExecutionEnvironment
from flink_skills.models import AssistantMessage, ToolMessage

SKILLS = Path(__file__).resolve().parent / "skills"


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.add_skills_from_paths([str(SKILLS)])
    output = env.from_list(["An order of exactly 50 pays for shipping."]).apply(ShopDoctor)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"file_tools: {errors[0]['error']}", file=sys.stderr)
        return 1

    messages = model.requests[-1].messages
    asked = [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    table = Table("tool", "of", "result", box=box.ROUNDED, show_lines=True)
    for call, result in zip(asked, results, strict=True):
        if call.name == "load_skill":
            continue
        arguments = {} if isinstance(call.arguments, str) else call.arguments
        what = str(arguments.get("command", arguments.get("pattern", arguments.get("path"))))
        table.add_row(call.name, Text(what), Text(told(json.loads(result.content))))
    Console().print(table)
    print(f"Answer: {answers[0]}")
    return 0


def told(value: Mapping[str, Any]) -> str:
    """What matters of a result."""
    if not value["success"]:
        last = value.get("stderr", "").strip().rpartition("\n")[2]
        return f"{last}\n{value['error']}".strip()
    if "matches" in value:
        matches = value["matches"]
        return "\n".join(one if isinstance(one, str) else f"{one['file']}:{one['line']}" for one in matches)
    return str(value.get("content") or value.get("message") or value.get("stdout", "")).strip()


if __name__ == "__main__":
    sys.exit(main())
