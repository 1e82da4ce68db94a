"""Two questions with each way of loading: the content of each request to the model, and its size.

python -m examples.load_modes
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from examples.load_modes.agent import RulesAgent
from examples.load_modes.model import QUESTIONS, use_script
from flink_skills import AgentsExecutionEnvironment, SkillOptions
from flink_skills.models import AssistantMessage, ModelRequest, ToolMessage

SKILLS = Path(__file__).resolve().parent / "skills"
#: The first line of its instructions: where this is, the skill is.
SKILL = "# Travel costs"


def main() -> int:
    table = Table(box=box.ROUNDED, title="Where each request holds the skill, and its characters", title_justify="left")
    table.add_column("lifetime\ncontent", no_wrap=True)
    for heading in ("1 loads\nthe skill", "2 calls\na tool", "3\nanswers", "4 next\nevent", "5\nanswers"):
        table.add_column(heading, justify="right")
    table.add_column("new\n", justify="right")
    for lifetime in ("turn", "once", "session"):
        for content in ("system", "tool-result"):
            requests = converse(lifetime, content)
            cells = [f"{held(request)}\n{len(sent(request)):,}" for request in requests]
            table.add_row(f"{lifetime}\n{content}", *cells, f"\n{new_text(requests):,}")
        table.add_section()
    Console().print(table)
    print("new: characters after the prefix shared with the previous request, total of the five requests.")
    return 0


def converse(lifetime: str, content: str) -> Sequence[ModelRequest]:
    """The requests of the conversation in a job that loads skills this way."""
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.add_skills_from_paths([str(SKILLS)])
    config = env.get_config().set(SkillOptions.TOOLS, ["knowledge_only"]).set(SkillOptions.TURN_ON_ERROR, "fail")
    config.set(SkillOptions.LOAD_LIFETIME, lifetime).set(SkillOptions.LOAD_CONTENT, content)
    env.from_list(QUESTIONS).apply(RulesAgent).to_list()
    return model.requests


def held(request: ModelRequest) -> str:
    """Where the skill's instructions are, if anywhere."""
    results = "".join(message.content for message in request.messages if isinstance(message, ToolMessage))
    return "system" if SKILL in request.system else "result" if SKILL in results else "-"


def sent(request: ModelRequest) -> str:
    """A request as a provider reads it: tools, system text, messages."""
    tools = [[spec.name, spec.description, spec.parameters] for spec in request.tools]
    parts = [json.dumps(tools), request.system]
    for message in request.messages:
        asked = message.tool_calls if isinstance(message, AssistantMessage) else ()
        parts += [message.content, *(f"{call.name}({call.arguments})" for call in asked)]
    return "\n".join(parts)


def new_text(requests: Sequence[ModelRequest]) -> int:
    """Characters that a provider has not just read, in all requests together."""
    texts = ["", *map(sent, requests)]
    return sum(len(text) - common(before, text) for before, text in pairwise(texts))


def common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


if __name__ == "__main__":
    sys.exit(main())
