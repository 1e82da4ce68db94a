"""The agent: a tool that is told of its arguments as they grow, and one that is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from flink_skills import Agent, ResourceDescriptor, StreamingFunctionTool, ToolContext, chat_model_setup, tool, tool_set
from flink_skills.telemetry import Observer
from flink_skills.tools import StreamedArguments


class Section(BaseModel):
    """A part of a report."""

    heading: str
    text: str


def publish_report(title: str, sections: list[Section]) -> str:
    """Publish a report."""
    ReportAgent.show("published", f"{title}: {len(sections)} sections, checked")
    return "published"


async def preview(streamed: StreamedArguments, context: ToolContext) -> None:
    """Show each section as soon as the model has begun the next one."""
    done = ReportAgent.previews.setdefault(context.call_id, [])
    if streamed.discarded:
        done.clear()
        ReportAgent.show("preview", "(withdrawn: the model is asked again)")
        return
    for section in streamed.arguments.get("sections", [])[len(done) : -1]:
        done.append(section)
        ReportAgent.show("preview", f"{section['heading']}: {section['text']}")


class ReportAgent(Agent):
    """Writes reports about jobs."""

    name = "reporter"
    instructions = "Look at the job, then publish a report about it."
    model_url: ClassVar[str] = ""
    show: ClassVar[Callable[[str, str], None]] = staticmethod(lambda what, text: None)
    observers: ClassVar[Sequence[Observer]] = ()
    previews: ClassVar[dict[str, list[Any]]] = {}

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz="openai-compatible:report-script", base_url=self.model_url)

    @tool
    def job_state(self, job: str) -> str:
        """State of a job."""
        self.show("job_state", f"{job} was looked at")
        return "FAILING since 10:02, checkpoints time out"

    @tool_set
    def at_hand(self) -> list[StreamingFunctionTool]:
        return [StreamingFunctionTool(publish_report, preview)]

    def listeners(self) -> Sequence[Observer]:
        return self.observers
