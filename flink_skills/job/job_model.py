"""Keys of a job file as pydantic models, from which its JSON schema and its documentation are derived."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Discriminator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, Tag

from flink_skills.agents.plan.spec import (
    AgentParts,
    AgentSpec,
    ConnectionSpec,
    PromptSpec,
    SetupSpec,
    SkillsSection,
    SourcePins,
    StrictPart,
    Text,
)
from flink_skills.options import Option, OptionFamily, SkillOptions
from flink_skills.options import option as parsers

#: The sections that a job can omit. A written one is not empty.
EMPTY_SECTIONS = ("skills", "connections", "models", "prompts", "errors", "events", "answers", "waits", "control")

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


class WaitsSection(StrictPart):
    """The table of questions for people."""

    table: Text = Field(description="Table that receives a row for each question, and one when its wait ends.")
    columns: Columns = Field({}, description="Field of the [wait](waits.md#show-the-questions) for a column.")


class AnswersSection(StrictPart):
    """The answers of people and programs to the waits of an agent. Give `table` or `query`."""

    table: Text | None = Field(None, description="Table or view whose rows are the answers.")
    query: Text | None = Field(None, description="SELECT whose rows are the answers.")
    key: Text | Annotated[list[Text], Field(min_length=1)] | None = Field(
        None, description="Column, or columns, with the key of the event that waits. Default: `key` of the input."
    )
    wait_id: Text = Field("wait_id", description="Column with the id of the wait, or the name of an open one.")


class ControlSection(StrictPart):
    """Records that [control the job](control.md) while it runs. Give `table` or `query`."""

    table: Text | None = Field(None, description="Table or view whose rows are the records.")
    query: Text | None = Field(None, description="SELECT whose rows are the records.")


Names = Text | Annotated[list[Text], Field(min_length=1)]


class AgentInput(StrictPart):
    """The input of one of several agents. Give `table`, `query` or `agent`."""

    table: Text | None = Field(None, description="A table or view whose rows are the events.")
    query: Text | None = Field(None, description="A SELECT whose rows are the events.")
    agent: Names | None = Field(None, description="The agent, or the agents, whose outputs are the events.")
    key: Names | None = Field(
        None,
        description="The column, or the columns, that are the key: turns of a key run one after another. Default for "
        "the outputs of agents: the key of those agents.",
    )


class AgentOutput(StrictPart):
    """The output of one of several agents. Give `table`, `agent`, or both."""

    table: Text | None = Field(None, description="The table that gets a row for each output.")
    agent: Names | None = Field(None, description="The agent, or the agents, that get an event for each output.")
    columns: Columns = Field(
        {},
        description="What goes into a column of the table: a path into the record, as for the output of a job with one "
        "agent. Without a table: the fields of the event that the agents get, each with its path.",
    )


class AgentToolSpec(StrictPart):
    """Another agent as a tool."""

    agent: Text = Field(description="The agent that is called, by its name under `agents`.")
    description: Text | None = Field(None, description="The description of the tool for models.")
    skip_summarization: StrictBool = Field(False, description="The answer of the agent is the answer of its caller.")
    share_state: StrictBool = Field(False, description="The agent reads and changes the state of its caller.")
    max_steps: StrictInt = Field(0, ge=0, description="The most steps of one call; 0: what the turn has left.")
    max_tokens: StrictInt = Field(0, ge=0, description="The most tokens of one call; 0: what the turn has left.")
    sessions: StrictBool = Field(False, description="Calls can continue the conversation of an earlier call.")
    approve: StrictBool = Field(False, description="Each call needs the approval of the caller.")


class JobAgent(AgentParts):
    """An agent of a job with several. Without `input` it is a tool of others, or others name it in their output."""

    agent: Text | None = Field(
        None, description="A YAML file in the folder of this one, or `module:Class`, in place of the keys of the agent."
    )
    input: AgentInput | None = None
    output: AgentOutput | None = None
    errors: ErrorsSection | None = Field(None, description="Error records of this agent; default: `errors` of the job.")
    events: EventsSection | None = Field(None, description="Events of this agent; default: `events` of the job.")
    answers: AnswersSection | None = Field(None, description="Answers to the waits of this agent.")
    waits: WaitsSection | None = Field(None, description="Questions of this agent; default: `waits` of the job.")
    agent_tools: dict[Text, Text | AgentToolSpec] | None = Field(
        None, description="Tools of the models that call other agents of the job: the tool's name with the agent's."
    )


def _agent_kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "mapping"


class JobFile(StrictPart):
    """A job with one agent between tables (`agent`, `input`, `output`), or with several (`agents`)."""

    name: Text = Field(description="The job's name.")
    flink: dict[Text, Scalar | list[Scalar] | dict[str, Any]] = Field({}, description="Options of Flink.")
    options: dict[Text, Scalar | list[Scalar | SourcePins] | dict[str, Any]] = Field(
        {}, description="Options `skills.*` of the job."
    )
    skills: SkillsSection | None = Field(None, description="Skills for all agents of the job.")
    connections: dict[Text, ConnectionSpec] | None = Field(
        None, description="Connections by name, for the chat models of all agents and for `models`."
    )
    models: dict[Text, SetupSpec] | None = Field(
        None, description="Chat models by name, for all agents. The first is the default of an agent without its own."
    )
    prompts: dict[Text, StrictStr | PromptSpec] | None = Field(
        None, description="Prompts by name, for the chat models of all agents."
    )
    jars: list[Text] = Field([], description="Jars of connectors for `flink-skills run`; a cluster has its own.")
    tables: Text = Field(description="CREATE statements of Flink SQL.")
    agent: (
        Annotated[Annotated[Text, Tag("text")] | Annotated[AgentSpec, Tag("mapping")], Discriminator(_agent_kind)]
        | None
    ) = Field(None, description="A YAML file in the folder of this one, `module:Class`, or the agent itself.")
    input: InputSection | None = Field(None, description="What comes in.")
    output: OutputSection | None = Field(None, description="Where outputs go.")
    agents: Annotated[dict[Text, JobAgent], Field(min_length=1)] | None = Field(
        None, description="Several agents by name, each with its input and output. Names are those of operators."
    )
    errors: ErrorsSection | None = Field(None, description="Without it, error records are only logged.")
    events: EventsSection | None = None
    answers: AnswersSection | None = Field(
        None, description="Answers to the waits of the agent. In a job with several, each agent has its own."
    )
    waits: WaitsSection | None = Field(None, description="Questions of the agents for people.")
    control: ControlSection | None = Field(
        None, description="Records that pause, refuse and resume agents, skills and tools."
    )


_SCALAR = [{"type": kind} for kind in ("string", "number", "boolean")]
_NUMBERS: tuple[Callable[[Any], Any], ...] = (parsers.parse_count, parsers.parse_positive)


def job_schema() -> dict[str, Any]:
    """Return the schema of the models, with every option `skills.*` by its key.

    >>> job_schema()["required"]
    ['name', 'tables']
    """
    schema = JobFile.model_json_schema()
    properties = schema["properties"]
    for name in EMPTY_SECTIONS:
        # They may be left out, but not be empty.
        properties[name]["anyOf"] = [form for form in properties[name]["anyOf"] if form.get("type") != "null"]
    properties["options"] = {
        "type": "object",
        "description": properties["options"]["description"],
        "properties": {option.key: _option(option) for option in SkillOptions.all()},
        "patternProperties": {f"^{re.escape(family.prefix)}": _family(family) for family in SkillOptions.families()},
        "additionalProperties": False,
    }
    one, several = ["agent", "input", "output"], ["agents"]
    for name in (*one, *several):
        properties[name] = _without_null(properties[name])
    schema["oneOf"] = [
        {"required": one, "not": {"required": several}},
        {"required": several, "not": {"anyOf": [{"required": [name]} for name in one]}},
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job file of flink_skills",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a property that may be left out, but not be null."""
    forms = [form for form in schema["anyOf"] if form.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **forms[0]} if len(forms) == 1 else {**rest, "anyOf": forms}


def _family(family: OptionFamily[Any]) -> dict[str, Any]:
    if family is SkillOptions.USER:
        return {"description": family.doc, "anyOf": [*_SCALAR, {"type": "array"}, {"type": "object"}]}
    return {"type": "string", "description": family.doc}


def _option(option: Option[Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": option.doc}
    if option.parse is parsers.parse_bool:
        # A reference stands for a value as well.
        return {**shown, "type": ["boolean", "string"]}
    if option.parse in _NUMBERS:
        return {**shown, "type": ["integer", "string"]}
    if option.parse in (parsers.parse_list, parsers.parse_folders, parsers.parse_labels):
        return {**shown, "anyOf": [{"type": "string"}, {"type": "array"}]}
    if option is SkillOptions.SOURCE_OPTIONS:
        return {**shown, "anyOf": [{"type": "string"}, {"type": "object"}]}
    return {**shown, "anyOf": _SCALAR}
