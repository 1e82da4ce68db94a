"""One question, call by call: searches and pages of the agent, and rejected requests.

python -m examples.web_research
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.web_research.agent import ResearchAgent
from examples.web_research.model import use_script
from examples.web_research.site import names, serve
from flink_skills import AgentsExecutionEnvironment, SkillOptions
from flink_skills.models import ToolMessage
from flink_skills.tools.web import WebFetchTool, WebSearchTool

SKILLS = Path(__file__).resolve().parent / "skills"


def main() -> int:
    with serve() as port:
        model = use_script(port)
        # The server of the example is on loopback, which a job leaves blocked.
        ResearchAgent.web = (
            WebSearchTool("searxng", base_url=f"http://127.0.0.1:{port}"),
            WebFetchTool(allowed_domains=["example.org"], resolver=names, block_private_network=False),
        )
        env = AgentsExecutionEnvironment.get_execution_environment()
        env.add_skills_from_paths([str(SKILLS)])
        env.get_config().set(SkillOptions.SHELL_ENABLED, False)
        output = env.from_list(["Which window suits events that come in bursts?"]).apply(ResearchAgent())
        answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"web_research: {errors[0]['error']}", file=sys.stderr)
        return 1

    table = Table(box=box.ROUNDED, title="What the agent did", title_justify="left")
    for heading in ("tool", "result", "what it gave"):
        table.add_column(heading, overflow="fold")
    for message in model.requests[-1].messages:
        if isinstance(message, ToolMessage) and message.name.startswith("web_"):
            value = json.loads(message.content)
            code, _, why = value["error"].partition(": ")
            given = value["content"] if "content" in value else "; ".join(one["title"] for one in value["results"])
            table.add_row(message.name, code or "ok", escape(" ".join((why or given).split())))
    Console().print(table)
    print(answers[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
