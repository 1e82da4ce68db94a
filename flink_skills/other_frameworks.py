"""Words of other agent frameworks, and what they are called here.

A declaration that uses such a word is an error that gives the right one, because it would have no effect otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["AGENT_WORDS", "CONTEXT_WORDS", "IMPORTS", "SETUP_WORDS"]

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

#: Names that a program may import.
IMPORTS: Mapping[str, str] = {
    "Skills": "return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[…]) from a method with @skills",
    "ReActAgent": "subclass Agent without on_event: its default is the loop of model and tools",
    "LlmAgent": "subclass Agent, and set instructions and model",
    "RunnerContext": "use AgentContext",
    "ResourceType": "use the decorators, such as @chat_model_setup, or add_resource(name, ResourceDescriptor(…))",
    "WorkflowAgent": "subclass Agent and override on_event",
    "action": "override on_event: one method handles an event from its start to its end",
    "Event": "an event is any value of the stream: on_event(self, event, ctx) gets it as it is",
    "InputEvent": "on_event(self, event, ctx) gets the value of the stream",
    "OutputEvent": "return the value from on_event, or call ctx.emit(value)",
    "ChatRequestEvent": "call answer = await ctx.chat(message)",
    "ChatResponseEvent": "await ctx.chat(message) returns the answer",
    "ToolRequestEvent": "call await ctx.call_tool(name, …)",
    "ToolResponseEvent": "await ctx.call_tool(name, …) returns the result",
    "ContextRetrievalRequestEvent": "retrieve documents in a step: await ctx.step('retrieve', function)",
    "ChatMessage": "pass the text, or any value, to ctx.chat(message)",
    "MemoryObject": "use ctx.state",
    "embedding_model_setup": "compute embeddings in a step: await ctx.step('embed', function)",
    "embedding_model_connection": "compute embeddings in a step: await ctx.step('embed', function)",
    "vector_store": "query the store in a step or in a tool",
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
    "action_config": "use ctx.config.get('skills.user.NAME'), or an attribute of the agent",
    "get_action_config_value": "use ctx.config.get('skills.user.NAME'), or an attribute of the agent",
    "agent_metric_group": "use ctx.metrics",
    "action_metric_group": "use ctx.metrics.group(key, value)",
    "actions": "call ctx.emit(value), or change ctx.state",
    "invocation_id": "use ctx.call_id",
    "user_content": "on_event(self, event, ctx) gets the event",
}
