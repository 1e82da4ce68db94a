"""Words of other agent frameworks, and what they are called here.

A declaration that uses such a word is an error that gives the right one, because it would have no effect otherwise.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

__all__ = [
    "AGENT_WORDS",
    "CONTEXT_WORDS",
    "FLINK_AGENTS_ITEMS",
    "FLINK_AGENTS_PROVIDERS",
    "FLINK_AGENTS_SECTIONS",
    "IMPORTS",
    "RESOURCES",
    "SETUP_WORDS",
    "TOOL_WORDS",
    "advised",
    "check_words",
]

F = TypeVar("F", bound=Callable[..., Any])

_INSTRUCTIONS = "use instructions, or a method with @prompt"
_SETTING = "set it on a chat model: ResourceDescriptor(…) of a method with @chat_model_setup"
_MODEL = "use model = 'provider:model', or a method with @chat_model_setup"
_OUTPUT = "use output_type"
_AGENTS = "declare a method with @agent_tool for each agent"
_LISTENERS = "return observers from listeners()"
_BEFORE_MODEL = "override the method before_model"
_AROUND_TOOL = "override the method around_tool"
_STEPS = "set the option skills.turn.max-steps"
_SESSION = "use session = 'key' to continue a conversation, and ctx.state for data"
_COMMANDS = "set the option skills.shell.allowed-commands of the job"
_TIMEOUT = "set the option skills.model.timeout"
_RETRIES = "set the option skills.model.max-retries"

#: Attributes of an agent.
AGENT_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("instruction", "system", "system_prompt", "system_message", "system_instruction"), _INSTRUCTIONS),
    **dict.fromkeys(("prompt", "prompts", "prompt_template", "global_instruction"), _INSTRUCTIONS),
    **dict.fromkeys(("role", "goal", "backstory", "persona"), _INSTRUCTIONS),
    **dict.fromkeys(("llm", "chat_model", "model_name", "model_id", "model_client", "chat_model_setup"), _MODEL),
    **dict.fromkeys(("output_schema", "response_format", "response_model", "result_type", "output_format"), _OUTPUT),
    **dict.fromkeys(("output_model", "output_pydantic", "structured_output"), _OUTPUT),
    **dict.fromkeys(("input_schema", "input_model"), "use input_type"),
    **dict.fromkeys(("context_schema", "state_schema", "deps_type"), "use state_type"),
    **dict.fromkeys(("sub_agents", "agents", "handoffs", "team", "delegates", "managed_agents"), _AGENTS),
    **dict.fromkeys(("max_steps", "max_turns", "max_iter", "max_iterations", "recursion_limit"), _STEPS),
    **dict.fromkeys(("memory", "short_term_memory", "checkpointer", "session_service"), _SESSION),
    **dict.fromkeys(("callbacks", "hooks", "event_handlers", "observers"), _LISTENERS),
    **dict.fromkeys(
        ("before_model_callback", "after_model_callback", "wrap_model_call", "before_model_call"), _BEFORE_MODEL
    ),
    **dict.fromkeys(
        ("before_tool_callback", "after_tool_callback", "wrap_tool_call", "before_tool", "after_tool"), _AROUND_TOOL
    ),
    **dict.fromkeys(("middleware", "guardrails"), "override the methods before_model and around_tool"),
    **dict.fromkeys(("temperature", "top_p", "top_k", "max_tokens", "seed", "stop_sequences", "thinking"), _SETTING),
    **dict.fromkeys(("model_settings", "generate_content_config", "llm_config", "price", "strategy"), _SETTING),
    **dict.fromkeys(
        ("skill_tools", "skill_lifetime", "skill_content", "max_loaded_skills", "skill_guidance"), _SETTING
    ),
    **dict.fromkeys(("base_url", "api_key_env"), "set it on a method with @chat_model_connection or @chat_model_setup"),
    "api_key": "name an environment variable with api_key_env= of a chat model",
    "tools": "declare each tool as a method with @tool, or return tools from a method with @tool_set",
    "toolsets": "return tools from a method with @tool_set",
    "mcp_servers": "declare each server as a method with @mcp_server",
    "skills": "declare sources in a method with @skills, or name skills in skill_names",
    "allowed_skills": "use skill_names",
    "description": "write it as the docstring of the class, or as description= of @agent_tool",
    "allowed_commands": _COMMANDS,
    "timeout": "set the option skills.turn.timeout",
    "request_timeout": _TIMEOUT,
    "retries": _RETRIES,
    "max_retries": _RETRIES,
    "output_retries": "set the option skills.turn.max-output-retries",
    "verbose": "set the log level of flink_skills",
    **dict.fromkeys(("fallback", "fallbacks", "fallback_models"), "set fallback=[…] on a chat model"),
    **dict.fromkeys(("router", "routing"), "use route = Route(…)"),
    "key_selector": "give it to from_datastream, from_table or from_list",
    "actions": "override on_event",
}

#: Arguments of a chat model or its connection.
SETUP_WORDS: Mapping[str, str] = {
    "skills": "use skill_names=[…]",
    "allowed_skills": "use skill_names=[…]",
    "allowed_commands": _COMMANDS,
    "allowed_script_types": _COMMANDS,
    "allowed_script_dirs": _COMMANDS,
    "extract_reasoning": "use thinking=True; a model's reasoning is never part of its answer",
    "think": "use thinking=True",
    "reasoning": "use thinking=True",
    "reasoning_effort": "use openai_reasoning_effort='low', or thinking=True",
    **dict.fromkeys(("request_timeout", "timeout"), _TIMEOUT),
    **dict.fromkeys(("max_retries", "retries"), _RETRIES),
    **dict.fromkeys(("fallbacks", "fallback_models", "fallback_model"), "use fallback=[…]"),
    **dict.fromkeys(("model_name", "model_id", "name"), "use model='NAME'"),
    **dict.fromkeys(
        ("endpoint", "host", "url", "api_base", "api_base_url", "azure_endpoint"), "use base_url='https://…'"
    ),
    **dict.fromkeys(("max_output_tokens", "max_completion_tokens", "num_predict"), "use max_tokens"),
    **dict.fromkeys(("stop", "stop_words"), "use stop_sequences=[…]"),
    **dict.fromkeys(("additional_kwargs", "model_kwargs", "extra", "num_ctx", "keep_alive"), "use extra_body={…}"),
    **dict.fromkeys(("headers", "default_headers"), "use extra_headers={…}"),
    **dict.fromkeys(("system", "system_prompt", "instructions"), "use prompt='NAME' of a method with @prompt"),
    **dict.fromkeys(("response_format", "output_schema", "output_type"), "set output_type on the agent"),
}

_EVENT = "an event is any value of the stream: on_event(self, event, ctx) gets it as it is"
_CHAT = "call answer = await ctx.chat(message)"
_CALL_TOOL = "call result = await ctx.call_tool(name, …)"
_MESSAGE = "pass the text, or any value, to ctx.chat(message)"
_STATE = "use ctx.state, which belongs to the key"
_OWN_MODEL = "subclass ChatModel, or name a provider with a setup such as ResourceName.ChatModel.OPENAI_SETUP"
_EMBEDDINGS = "compute embeddings in a step: await ctx.step('embed', function)"
_DOCUMENTS = "query the store in a step, await ctx.step('retrieve', function), or in a tool"
_ERRORS = "set the options skills.turn.on-error and skills.model.max-retries"
_OPTIONS = "set options with get_config().set(SkillOptions.NAME, value)"
_METRICS = "use ctx.metrics, which has counters, gauges and histograms"
_EVENT_LOG = "read the side output of events: to_event_stream(), or the option skills.events.enabled"
_JAVA = "agents are written in Python or YAML: there are no Java resources"
_MANAGER = "use AgentSkillManager, or declare sources in a method with @skills"
_SKILL_TOOLS = "agents have the tools of skills; the option skills.tools selects their profile"
_AGENT_TOOL = "declare a method with @agent_tool that returns the agent"
_MCP = "declare a method with @mcp_server that returns the parameters of the connection"
_MCP_PARAMETERS = "import it from flink_skills.tools.mcp"
_TOOLS = "import it from flink_skills.tools"
_WORKSPACES = "commands run in the sandbox of the job: set the options skills.shell.* and skills.workspace.*"
_TASKS = "keep the list in ctx.state, or in a file of the workspace"
_FILTERS = "override around_tool of the agent, or use @tool(around=function) for one tool"

#: Arguments for a tool or a tool set.
TOOL_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("filters_name", "filters", "filter", "middleware"), _FILTERS),
    **dict.fromkeys(("before_tool_callback", "after_tool_callback"), _AROUND_TOOL),
    **dict.fromkeys(("requires_approval", "needs_approval", "require_confirmation"), "use approve=True"),
    **dict.fromkeys(("args_schema", "parameters", "input_schema"), "annotate the arguments of the function"),
    "is_include_all_tools": "a pool offers the tools that loaded skills name; @tool_set offers all",
    "return_direct": "set the class attribute ends_chat = True of a Tool",
    "is_long_running": "call await context.wait(name) in the tool",
}

#: Names that a program may import.
IMPORTS: Mapping[str, str] = {
    "Skills": "return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[…]) from a method with @skills",
    "SkillSourceSpec": "give paths, resources and urls to ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, …)",
    "ReActAgent": "subclass Agent without on_event: its default is the loop of model and tools",
    **dict.fromkeys(("LlmAgent", "ClaudeAgent"), "subclass Agent, and set instructions and model"),
    **dict.fromkeys(("OpenAIModel", "LLMModel", "AnthropicModel", "LiteLLMModel"), _MODEL),
    "AgentBuilder": "apply(agent) returns the output: call to_datastream(), to_table() or to_list()",
    **dict.fromkeys(("RunnerContext", "InvocationContext"), "use AgentContext, and ToolContext in tools"),
    "ResourceType": "use the decorators, such as @chat_model_setup, or add_resource(name, ResourceDescriptor(…))",
    **dict.fromkeys(("SerializableResource", "ResourceContext", "get_resource_class"), "declare resources by name"),
    "WorkflowAgent": "subclass Agent and override on_event",
    "action": "override on_event: one method handles an event from its start to its end",
    **dict.fromkeys(("Event", "EventType", "AgentRunBeginEvent"), _EVENT),
    "InputEvent": "on_event(self, event, ctx) gets the value of the stream",
    "OutputEvent": "return the value from on_event, or call ctx.emit(value)",
    "ChatRequestEvent": _CHAT,
    "ChatResponseEvent": "await ctx.chat(message) returns the answer",
    "ToolRequestEvent": _CALL_TOOL,
    "ToolResponseEvent": "await ctx.call_tool(name, …) returns the result",
    **dict.fromkeys(("ContextRetrievalRequestEvent", "ContextRetrievalResponseEvent"), _DOCUMENTS),
    **dict.fromkeys(("ChatMessage", "MessageRole", "find_first_system_message", "PromptMessage"), _MESSAGE),
    **dict.fromkeys(("Content", "Part"), _MESSAGE),
    "SKILL_TOOLS_STATE_KEY_PREFIX": "the session has the selection: skill_list_tools shows it",
    **dict.fromkeys(("BaseChatModelSetup", "BaseChatModelConnection"), _OWN_MODEL),
    "OutputSchema": "set output_type of the agent, or call ctx.chat(message, output_type=…)",
    "StructuredOutputStrategy": "set strategy= of the chat model, or the option skills.model.strategy",
    **dict.fromkeys(("AgentExecutionOptions", "AgentConfigOptions", "MemoryEventOptions"), _OPTIONS),
    **dict.fromkeys(("ConfigOption", "Configuration", "ReadableConfiguration", "WritableConfiguration"), _OPTIONS),
    "ErrorHandlingStrategy": _ERRORS,
    "ConditionEvaluationFailureStrategy": _ERRORS,
    **dict.fromkeys(("LoggerType", "EventLogLevel"), _EVENT_LOG),
    **dict.fromkeys(("Counter", "Gauge", "Histogram", "Meter", "MetricGroup"), _METRICS),
    **dict.fromkeys(("Document", "VectorStoreQuery", "VectorStoreQueryResult", "VectorStoreQueryMode"), _DOCUMENTS),
    **dict.fromkeys(("BaseVectorStore", "CollectionManageableVectorStore", "vector_store"), _DOCUMENTS),
    **dict.fromkeys(("embedding_model_setup", "embedding_model_connection", "EmbeddingTokenUsage"), _EMBEDDINGS),
    **dict.fromkeys(("BaseEmbeddingModelSetup", "BaseEmbeddingModelConnection", "EmbeddingResult"), _EMBEDDINGS),
    **dict.fromkeys(("MemoryObject", "MemoryRef", "MemoryType", "MemoryEvent", "MemorySet", "MemorySetItem"), _STATE),
    **dict.fromkeys(("BaseLongTermMemory", "LongTermMemoryOptions", "LoadMemoryTool", "PreloadMemoryTool"), _STATE),
    **dict.fromkeys(("ShortTermWriteEvent", "ShortTermReadEvent", "SensoryWriteEvent", "SensoryReadEvent"), _STATE),
    **dict.fromkeys(("LongTermUpdateEvent", "LongTermGetEvent", "LongTermSearchEvent"), _STATE),
    **dict.fromkeys(("ShortTermMemoryTtlUpdate", "ShortTermMemoryTtlVisibility"), "set the option skills.session.ttl"),
    "load_yaml": "call load_agent_yaml(path) for an agent, or flink-skills run JOB.yaml for a job",
    "LocalPrompt": "use Prompt",
    **dict.fromkeys(("ToolMetadata", "BaseTool", "ToolType"), "subclass Tool, whose spec describes it"),
    **dict.fromkeys(
        ("InjectedArg", "ToolParameterSource"), "annotate a parameter with ToolContext, and read its fields"
    ),
    **dict.fromkeys(("java_resource", "JavaFunction", "JavaChatModelConnection", "JavaChatModelSetup"), _JAVA),
    **dict.fromkeys(("JavaEmbeddingModelConnection", "JavaEmbeddingModelSetup", "JavaVectorStore"), _JAVA),
    "JavaCollectionManageableVectorStore": _JAVA,
    **dict.fromkeys(("Function", "PythonFunction"), "pass the function itself"),
    "AsyncExecutionResult": "await ctx.step('name', function) returns the result",
    "DynamicSkillToolSet": "return the tools from a method with @tool_pool: loaded skills name those that a model gets",
    "TOOL_STREAMING_ARGS": "return observers from listeners(), which get each piece, or use StreamingFunctionTool",
    **dict.fromkeys(("SKILL_LOADED_STATE_KEY_PREFIX", "SKILL_DOCS_STATE_KEY_PREFIX"), "use ctx.skills"),
    "SkillToolSet": _SKILL_TOOLS,
    **dict.fromkeys(("SkillLoadTool", "SkillRunTool", "SkillExecTool", "SkillProfileFlags"), _SKILL_TOOLS),
    **dict.fromkeys(("create_default_skill_repository", "FsSkillRepository", "BaseSkillRepository"), _MANAGER),
    **dict.fromkeys(("CachedFsSkillRepository", "SkillRegistry", "SkillRootResolver"), _MANAGER),
    **dict.fromkeys(("Skill", "SkillSummary", "SkillResource"), "use AgentSkill"),
    "AgentTool": _AGENT_TOOL,
    **dict.fromkeys(("DynamicSubAgentTool", "SpawnSubAgentTool", "transfer_to_agent", "TransferAgent"), _AGENT_TOOL),
    **dict.fromkeys(("MCPToolset", "MCPTool", "MCPServer"), _MCP),
    **dict.fromkeys(("McpStdioServerParameters", "StdioConnectionParams", "SseConnectionParams"), _MCP_PARAMETERS),
    "StreamableHTTPConnectionParams": _MCP_PARAMETERS,
    "patch_mcp_cancel_scope_exit_issue": "connections of MCP servers need no patch: omit the call",
    **dict.fromkeys(
        ("ReadTool", "WriteTool", "EditTool", "GrepTool", "GlobTool", "BashTool"),
        "import Read, Write, Edit, Grep, Glob or Bash from flink_skills.tools.files",
    ),
    **dict.fromkeys(("FileToolSet", "WebFetchTool", "WebSearchTool"), _TOOLS),
    "LongRunningFunctionTool": "call await context.wait(name) in a tool: the turn waits without a worker",
    **dict.fromkeys(("TodoWriteTool", "TaskToolSet", "TaskCreateTool", "GoalToolSet"), _TASKS),
    **dict.fromkeys(("SetModelResponseTool", "LoadMemoryResponse"), _OUTPUT),
    **dict.fromkeys(("register_tool_set", "get_tool_set", "ToolRegistry"), "return tools from a method with @tool_set"),
    **dict.fromkeys(("BaseFilter", "register_filter", "register_checker"), _FILTERS),
    **dict.fromkeys(("create_local_workspace_runtime", "create_container_workspace_runtime"), _WORKSPACES),
    **dict.fromkeys(
        ("Runner", "InMemorySessionService"), "apply the agent to a stream: from_list(events).apply(agent)"
    ),
}

#: Names in :class:`~flink_skills.ResourceName` and its classes.
RESOURCES: Mapping[str, str] = {
    **dict.fromkeys(
        ("TONGYI_CONNECTION", "TONGYI_SETUP"),
        "use OPENAI_COMPATIBLE_CONNECTION and OPENAI_COMPATIBLE_SETUP with base_url and api_key_env of the service",
    ),
    **dict.fromkeys(("GEMINI_CONNECTION", "GEMINI_SETUP"), "use clazz='google:NAME', which needs the extra providers"),
    **dict.fromkeys(
        ("BEDROCK_CONNECTION", "BEDROCK_SETUP"), "use clazz='bedrock:NAME', which needs the extra providers"
    ),
    "Java": _JAVA,
    **dict.fromkeys(("JAVA_WRAPPER_CONNECTION", "JAVA_WRAPPER_SETUP"), _JAVA),
    "EmbeddingModel": _EMBEDDINGS,
    "VectorStore": _DOCUMENTS,
    "SKILLS": "use SKILLS_MANAGER",
    "PROMPT": "declare a method with @prompt",
    "TOOL": "declare a method with @tool",
}

#: Attributes of the context that an agent gets with an event.
CONTEXT_WORDS: Mapping[str, str] = {
    "send_event": "return a value from on_event, or call ctx.emit(value); call a model with await ctx.chat(…)",
    "get_resource": "call a model with await ctx.chat(…, model=NAME) and a tool with await ctx.call_tool(NAME, …)",
    "durable_execute": "use await ctx.step('name', function, …)",
    "durable_execute_async": "use await ctx.step('name', function, …)",
    "execute_async": "use await ctx.step('name', function, …)",
    "short_term_memory": "use ctx.state, which belongs to the key",
    "long_term_memory": "use ctx.state, which belongs to the key",
    "sensory_memory": "use local variables: on_event runs from the start of a turn to its end",
    "memory": "use ctx.state, which belongs to the key",
    "session": "use ctx.state, or session_selector of the agent",
    "loaded_skills": "use ctx.skills for the skills that are loaded now, or ctx.skills_loaded_in_turn",
    "action_config": "use ctx.config.get('skills.user.NAME'), or an attribute of the agent",
    "get_action_config_value": "use ctx.config.get('skills.user.NAME'), or an attribute of the agent",
    "agent_metric_group": "use ctx.metrics",
    "action_metric_group": "use ctx.metrics.group(key, value)",
    "actions": "call ctx.emit(value), or change ctx.state",
    "invocation_id": "use ctx.call_id",
    "user_content": "on_event(self, event, ctx) gets the event",
    "session_state": "use ctx.state, which belongs to the key",
    "user_id": "use ctx.key",
    "agent_context": "use ctx.state, or an attribute of the agent",
    "artifact_service": "use ctx.artifacts",
}


#: Sections of the YAML files of Flink Agents, in an agent or in the file, and what to write. ``{name}`` is the name of
#: the first item, ``{provider}`` its provider, ``{function}`` its function and ``{endpoint}`` its address.
FLINK_AGENTS_SECTIONS: Mapping[str, str] = {
    "name": "write the name as a key: agents: {{{name}: …}}",
    "description": "write a comment; only an agent that is a tool has a description, in agent_tools of its caller",
    "actions": "write all actions of an agent as one method on_event of a class, and write agent: module:Class",
    "chat_model_connections": "write a mapping of names, {name}: {{clazz: {provider}.connection}}; for all agents of "
    "a job: connections",
    "chat_model_setups": "write a mapping of names, {name}: {{clazz: {provider}.setup, model: …}}; for all agents of "
    "a job: models",
    "prompts": "write a mapping of names, {name}: {{system: …, user: …}}",
    "tools": "write a list of functions in each agent, tools: ['{function}']; a tool has the name of its function",
    "skills": "write one mapping without a name, skills: {{paths: […], urls: […], resources: […]}}",
    "mcp_servers": "write a mapping of names in each agent, {name}: {{url: {endpoint}}}",
    **dict.fromkeys(("embedding_model_connections", "embedding_model_setups"), _EMBEDDINGS),
    "vector_stores": _DOCUMENTS,
}

#: Keys of the items in these sections. Other keys of chat models are in :data:`SETUP_WORDS`.
FLINK_AGENTS_ITEMS: Mapping[str, str] = {
    "type": f"omit it: {_JAVA}",
    "endpoint": "write base_url, or url for an MCP server",
    "api_key": "write api_key_env with the name of an environment variable",
    **dict.fromkeys(("request_timeout", "requestTimeout"), _TIMEOUT),
    "messages": "write the system message as system and the user message as user; {event} is the event",
    "text": "write the text itself instead of a mapping, or system and user",
    "parameter_types": f"omit it: {_JAVA}",
    "injected_args": "annotate a parameter of the function with ToolContext, and read its fields",
    "url_sources": "write them under urls, each as {url: …, sha256: …}",
    "classpath": "write them under resources: folders or zips in the jars of the job",
    "package": "write the folder of the package under paths",
}

#: Providers by their ``clazz`` in Flink Agents.
FLINK_AGENTS_PROVIDERS: Mapping[str, str] = {
    **{name: name for name in ("ollama", "openai", "anthropic", "bedrock")},
    "openai_completions": "openai",
    "openai_responses": "openai-responses",
    "azure_openai": "azure",
    "gemini": "google",
    **dict.fromkeys(("vllm", "tongyi", "watsonx"), "openai-compatible"),
}


def check_words(owner: type, given: Iterable[str], words: Mapping[str, str]) -> None:
    """Reject an argument of another framework that the constructor of ``owner`` lacks.

    Raises:
        TypeError: An argument is one of ``words``. The message has its replacement.
    """
    _check(owner.__name__, owner.__init__, given, words)  # type: ignore[misc]


def advised(function: F) -> F:
    """Return ``function``, a function for tools that rejects arguments of other frameworks with their replacement."""

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        _check(function.__name__, function, named, TOOL_WORDS)
        return function(*arguments, **named)

    return cast(F, checked)


def _check(name: str, called: Callable[..., Any], given: Iterable[str], words: Mapping[str, str]) -> None:
    for argument in given:
        if argument in words and argument not in inspect.signature(called).parameters:
            raise TypeError(f"{name} has no argument {argument!r}: {words[argument]}")
