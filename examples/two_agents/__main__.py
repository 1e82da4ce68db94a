"""One question, two agents: the content of each request to a model.

python -m examples.two_agents
"""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from examples.two_agents.agents import SKILLS, SupportDesk
from examples.two_agents.model import QUESTION, STEPS, use_script
from flink_skills import AgentsExecutionEnvironment, SkillOptions


def main() -> int:
    model = use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.get_config().set(SkillOptions.TOOLS, ["knowledge_only"])
    output = env.from_list([QUESTION]).apply(SupportDesk)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"two_agents: {errors[0]['error']}", file=sys.stderr)
        return 1

    names = sorted(folder.parent.name for folder in SKILLS.glob("*/*/SKILL.md"))
    table = Table(box=box.ROUNDED, title="Who asks a model, and what it reads", title_justify="left")
    for heading in ("agent", "the model", "its skills", "loaded", "messages"):
        table.add_column(heading, justify="right" if heading == "messages" else "left")
    for (agent, what, _), request in zip(STEPS, model.requests, strict=True):
        offered = [name for name in names if f"\n- {name}: " in request.system]
        loaded = [name for name in names if f'<skill_content name="{name}">' in request.system]
        table.add_row(agent, what, ", ".join(offered), ", ".join(loaded), str(len(request.messages)))
    Console().print(table)
    print(f"Answer: {answers[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
