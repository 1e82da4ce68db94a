"""What a job file may say, as pydantic models: the source of its JSON schema and of its documentation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, Tag

from flink_skills.agents.spec import AgentSpec, SkillsSection, SourcePins, StrictPart, Text

__all__ = [
    "ErrorsSection",
    "EventsSection",
    "InputSection",
    "JobFile",
    "OutputSection",
]

Scalar = StrictStr | StrictInt | StrictFloat | StrictBool


class InputSection(StrictPart):
    """What comes in. Give `table` or `query`."""

    table: Text | None = Field(None, description="A table or view whose rows are the events.")
    query: Text | None = Field(None, description="A SELECT whose rows are the events.")
    key: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="The column, or the columns, that are the key: turns of a key run one after another."
    )


Columns = dict[Text, Text | None]


class OutputSection(StrictPart):
    """Where outputs go."""

    table: Text = Field(description="The table that gets a row for each output.")
    columns: Columns = Field(
        {},
        description="What goes into a column: a path into the record, such as `event.id`, `output.summary` or "
        "`usage.input_tokens`; null leaves the column NULL. Other columns follow the rule for columns.",
    )


class ErrorsSection(StrictPart):
    """Where error records go."""

    table: Text = Field(description="The table that gets a row for each failed turn and each output that did not fit.")
    columns: Columns = Field({}, description="What goes into a column, as for `output`.")


class EventsSection(StrictPart):
    """Where the stream of what happens in turns goes."""

    table: Text = Field(description="The table that gets a row for each thing that happened in a turn.")
    columns: Columns = Field({}, description="What goes into a column: a field of the event.")


def _agent_kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "mapping"


class JobFile(StrictPart):
    """A job with one agent between tables."""

    name: Text = Field(description="The job's name.")
    flink: dict[Text, Scalar | list[Scalar] | dict[str, Any]] = Field({}, description="Options of Flink.")
    options: dict[Text, Scalar | list[Scalar | SourcePins] | dict[str, Any]] = Field(
        {}, description="Options `skills.*` of the job."
    )
    skills: SkillsSection | None = Field(None, description="Skills for all agents of the job.")
    jars: list[Text] = Field([], description="Jars of connectors for `flink-skills run`; a cluster has its own.")
    agent: Annotated[
        Annotated[Text, Tag("text")] | Annotated[AgentSpec, Tag("mapping")], Discriminator(_agent_kind)
    ] = Field(description="A YAML file beside this one, `module:Class`, or the agent itself.")
    tables: Text = Field(description="CREATE statements of Flink SQL.")
    input: InputSection
    output: OutputSection
    errors: ErrorsSection | None = Field(None, description="Without it, error records are only logged.")
    events: EventsSection | None = None
