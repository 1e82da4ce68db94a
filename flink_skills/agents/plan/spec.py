"""The keys of an agent's YAML file as pydantic models, from which its schema and its checks are derived."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

__all__ = [
    "AgentParts",
    "AgentSpec",
    "ApproveSpec",
    "ConnectionSpec",
    "PromptSpec",
    "RouteSpec",
    "SetupSpec",
    "SkillsSection",
    "SourcePins",
    "StrictPart",
    "Text",
]

Text = Annotated[StrictStr, Field(min_length=1)]


class StrictPart(BaseModel):
    """A mapping that accepts only the declared keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourcePins(StrictPart):
    """A source of skills with pins."""

    path: Text | None = Field(None, description="A folder or archive, for `paths`.")
    resource: Text | None = Field(None, description="A folder or zip inside the job's jars, for `resources`.")
    url: Text | None = Field(None, description="The URL of an archive, for `urls`.")
    sha256: Text | None = Field(None, description="SHA-256 of the archive's bytes, 64 hexadecimal digits.")
    format: Literal["skill", "heading"] | None = Field(None, description="How its skills are written.")


class SkillsSection(StrictPart):
    """The sources of skills."""

    paths: list[Text | SourcePins] = Field([], description="Folders or archives of skills on the TaskManagers.")
    resources: list[Text | SourcePins] = Field([], description="Folders or zips inside the job's jars.")
    urls: list[Text | SourcePins] = Field([], description="URLs of archives of skills (https, s3, file …).")


class AgentSkillsSection(SkillsSection):
    """The sources of skills of an agent, and a filter."""

    skill_names: list[Text] | None = Field(None, description="As `skill_names` of the agent; both narrow.")


class ConnectionSpec(StrictPart):
    """A connection to a provider of chat models."""

    clazz: Text = Field(description="The provider's connection, such as `openai.connection`.")
    base_url: Text | None = Field(None, description="Where the provider's API is.")
    base_urls: list[Text] | None = Field(
        None, description="Where equal servers have the API. The requests of a key go to the same one."
    )
    api_key_env: Text | None = Field(None, description="Name of the TaskManagers' environment variable with the key.")


class SetupSpec(BaseModel):
    """A chat model with its skills and tools. Other keys are settings of the model."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    clazz: Text = Field(description="The provider's setup, such as `openai.setup`, or `PROVIDER:MODEL`.")
    connection: Text | None = Field(None, description="One of `chat_model_connections`.")
    model: Text | None = Field(None, description="The provider's name of the model.")
    base_url: Text | None = Field(None, description="Where the provider's API is.")
    base_urls: list[Text] | None = Field(
        None, description="Where equal servers have the API. The requests of a key go to the same one."
    )
    api_key_env: Text | None = Field(None, description="Name of the TaskManagers' environment variable with the key.")
    strategy: Literal["auto", "native", "json"] | None = Field(
        None, description="How the model acts: native tool calls, or constrained JSON."
    )
    on_incomplete: Literal["fail", "retry", "emit"] | None = Field(
        None, description="As the option `skills.model.on-incomplete`."
    )
    price: StrictFloat | StrictInt | dict[Text, StrictFloat | StrictInt] | None = Field(
        None,
        description="USD per million tokens, such as `{input: 1.25, output: 10.0}`. `cache_read` and `cache_write` "
        "are the prices of tokens of the provider's cache, and default to that of `input`.",
    )
    fallback: list[Text] | None = Field(
        None,
        description="The chat models that answer if this one does not, in their order: names of chat models, or "
        "`PROVIDER:MODEL`.",
    )
    media: list[Literal["image", "pdf", "audio"]] | None = Field(
        None, description="The content that the model accepts next to text; default: that of its provider."
    )
    skill_names: list[Text] | None = Field(None, description="The only skills that the model may see.")
    tools: list[Text] | None = Field(None, description="The only tools of the agent that the model has.")
    prompt: Text | None = Field(None, description="One of `prompts`.")
    skill_tools: Text | list[Text] | None = Field(None, description="As the option `skills.tools`.")
    skill_lifetime: Text | None = Field(None, description="As the option `skills.load.lifetime`.")
    skill_content: Text | None = Field(None, description="As the option `skills.load.content`.")
    run_code: StrictBool | None = Field(None, description="As the option `skills.code.enabled`.")
    max_loaded_skills: StrictInt | None = Field(None, description="As the option `skills.max-loaded`.")
    skill_guidance: StrictStr | None = Field(None, description="As the option `skills.prompt.guidance`.")


class PromptSpec(StrictPart):
    """The parts of a prompt."""

    system: StrictStr = Field("", description="The system text.")
    user: StrictStr = Field("", description="The text around the event; `{event}` is the event.")


FieldType = Literal["str", "int", "float", "bool", "list", "dict", "any"]


class RouteSpec(StrictPart):
    """The choice of the chat model by a field of the event."""

    field: Text = Field(description="A column of the event, or a path to a nested field, such as `customer.tier`.")
    models: dict[StrictStr | StrictInt | StrictBool, Text] = Field(
        min_length=1, description="The chat model by value of the field."
    )
    default: Text = Field(description="The chat model for other values, and for events without the field.")


class ToolEntry(StrictPart):
    """A tool with a function that runs its calls."""

    tool: Text = Field(description="`module:function`, or the name of a registered tool.")
    around: Text = Field(description="`module:function`: runs each call, as the hook `around_tool` does for all tools.")


class ApproveSpec(StrictPart):
    """Calls of tools that are made only after an approval."""

    tools: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="The tools, by name or pattern (`Write`, `mcp_*`), in addition to the option "
        "`skills.tools.approve` and to tools that declare `approve`.",
    )
    by: Text = Field(
        description="`answers`: a person decides, see [Ask people](job-files.md#ask-people). Or `module:function`: it "
        "receives an `ApprovalRequest` and returns true, false, or a string with the reason for a refusal."
    )
    question: Text | None = Field(None, description="With `by: answers`: the question for people.")
    timeout: Text | StrictInt | StrictFloat | None = Field(
        None, description="With `by: answers`: the time to decide, such as `2 d`. Default: no limit."
    )
    on_timeout: Literal["refuse", "approve", "fail"] | None = Field(
        None, description="With `by: answers`: `refuse` (default) or `approve` the call, or `fail` the turn."
    )


class AgentParts(StrictPart):
    """The declarations of an agent without code."""

    instructions: StrictStr | None = Field(None, description="The instructions of all models: a system prompt.")
    session: Literal["event", "key"] | None = Field(
        None,
        description="`event`: each event is a separate conversation. `key`: the events of a key continue one "
        "conversation.",
    )
    session_selector: Text | None = Field(
        None, description="With `session: key`: the column whose value selects one of several conversations of a key."
    )
    model: Text | None = Field(None, description="`PROVIDER:MODEL` or `offline`, for one model without settings.")
    route: RouteSpec | None = Field(
        None, description="The chat model of each event, by a field of the event. Default: the first chat model."
    )
    input_type: Text | dict[Text, FieldType] | None = Field(
        None,
        description="What the agent is asked as a tool of another one: a mapping of field to type, or `module:Class`; "
        "default: a string.",
    )
    output_type: Text | dict[Text, FieldType] | None = Field(
        None, description="What the answer must be: a mapping of field to type, or `module:Class`; default: text."
    )
    run_code: StrictBool | None = Field(None, description="As the option `skills.code.enabled`.")
    skill_names: list[Text] | None = Field(
        None, description="The only skills of the job and the agent that its models may see."
    )
    visible_skills: Text | None = Field(
        None,
        description="The column whose value lists the only skills that the models may see for the event: an array of "
        "names, or a text with names separated by commas. NULL: all that they have.",
    )
    files: Text | None = Field(None, description="The column that has the files of the event; default: `files`.")
    content: Text | Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="The column, or the columns, with images, PDF documents and audio for the models: bytes, base64, "
        "an address under `skills.files.allowed`, an artifact, or an array of these.",
    )
    state: dict[Text, Any] | None = Field(
        None, description="JSON schema of the key's state, an object whose properties have defaults."
    )
    approve: ApproveSpec | None = Field(None, description="Calls of tools that are made only after an approval.")
    skills: AgentSkillsSection | None = Field(
        None, description="Skills of this agent, in addition to those of the job."
    )
    chat_model_connections: dict[Text, ConnectionSpec] | None = Field(None, description="Connections by name.")
    chat_model_setups: dict[Text, SetupSpec] | None = Field(None, description="Chat models by name.")
    prompts: dict[Text, StrictStr | PromptSpec] | None = Field(None, description="Prompts by name.")
    tools: list[Text | ToolEntry] | None = Field(None, description="Tools of the models, each `module:function`.")
    mcp_servers: dict[Text, dict[Text, Any] | Text] | None = Field(
        None,
        description="MCP servers by name, each with `url` or `command`, whose tools the models have. `file` names a "
        "`.mcp.json`, and `mcpServers` is the object of such a file.",
    )
    tool_pool: list[Text | ToolEntry] | None = Field(
        None, description="Tools that a model gets with a skill that names them."
    )


class AgentSpec(AgentParts):
    """An agent without code: the keys of an agent's YAML file."""

    name: Text | None = Field(None, description="The agent's id, which its state belongs to; default: the job's name.")
