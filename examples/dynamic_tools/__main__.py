"""One conversation, request by request: the active tools of the pool, and their tokens.

python -m examples.dynamic_tools
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from examples.dynamic_tools import tools
from examples.dynamic_tools.agent import ShopAgent
from examples.dynamic_tools.model import STEPS, use_script
from flink_skills import AgentsExecutionEnvironment, SkillOptions
from flink_skills.tools.base import ToolSpec
from flink_skills.tools.function import FunctionTool

SKILLS = Path(__file__).resolve().parent / "skills"
CHARS_PER_TOKEN = 4
POOL = {function.__name__ for function in tools.ALL}


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.add_skills_from_paths([str(SKILLS)])
    env.get_config().set(SkillOptions.SHELL_ENABLED, False)
    output = env.from_list(["I am Ann. Where is my order A-17? It is late!"]).apply(ShopAgent())
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"dynamic_tools: {errors[0]['error']}", file=sys.stderr)
        return 1

    table = Table(box=box.ROUNDED, title="A conversation with a pool of 12 tools", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("the model")
    table.add_column("tools of the pool that it has", overflow="fold")
    table.add_column("tokens", justify="right")
    for number, ((what, _), request) in enumerate(zip(STEPS, model.requests, strict=True), 1):
        active = [spec for spec in request.tools if spec.name in POOL]
        table.add_row(str(number), what, ", ".join(spec.name for spec in active) or "none", str(_tokens(active)))
    Console().print(table)
    everything = _tokens([FunctionTool(function).spec for function in tools.ALL])
    print(f"All twelve together: about {everything} tokens in each of the {len(model.requests)} requests.")
    print(f"Answer: {answers[0]}")
    return 0


def _tokens(specs: Sequence[ToolSpec]) -> int:
    """About what the tools cost in a request."""
    text = "".join(json.dumps([spec.name, spec.description, spec.parameters]) for spec in specs)
    return len(text) // CHARS_PER_TOKEN


if __name__ == "__main__":
    sys.exit(main())
