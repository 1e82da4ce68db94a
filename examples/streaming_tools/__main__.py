"""One report: its parts while the model writes it, and the same turn as events for a web page.

python -m examples.streaming_tools
"""

from __future__ import annotations

import sys
from itertools import groupby

from ag_ui.core import BaseEvent
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.streaming_tools.agent import ReportAgent
from examples.streaming_tools.model import model_server
from flink_skills import AgentsExecutionEnvironment, SkillOptions
from flink_skills.integrations import AgUiObserver
from flink_skills.telemetry import TurnScope


def main() -> int:
    seen: list[tuple[str, str]] = []
    events: list[str] = []

    def send(scope: TurnScope, event: BaseEvent) -> None:
        events.append(event.type.value)

    ReportAgent.show = staticmethod(lambda what, text: seen.append((what, text)))
    ReportAgent.observers = [AgUiObserver(send)]
    with model_server() as server:
        ReportAgent.model_url = server.url
        env = AgentsExecutionEnvironment.get_execution_environment()
        env.get_config().set(SkillOptions.SHELL_ENABLED, False)
        env.get_config().set(SkillOptions.MODEL_RETRY_BACKOFF, 0.01)
        output = env.from_list(["What is wrong with the job orders?"]).apply(ReportAgent)
        answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"streaming_tools: {errors[0]['error']}", file=sys.stderr)
        return 1

    table = Table(box=box.ROUNDED, title="What was seen, in order", title_justify="left")
    table.add_column("tool")
    table.add_column("what it saw")
    for what, text in seen:
        table.add_row(what, escape(text))
    Console().print(table)
    print(answers[0])
    print("\nFor a web page, as AG-UI events:")
    for kind, group in groupby(events):
        count = len(list(group))
        print(f"  {kind}" + (f" x {count}" if count > 1 else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
