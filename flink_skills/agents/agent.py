"""The agent class that users write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flink_skills.agents.context import AgentContext

__all__ = ["Agent"]


class Agent:
    """An agent: what it is told, which skills, models and tools it has, and what it does with an event.

    Subclass it and declare; without more code each event goes through the loop of model and tools, and the
    answer is emitted. Override :meth:`on_event` for a workflow of your own.

    Attributes:
        instructions: System text. A ``@prompt`` method named ``instructions`` does the same.
        output_type: Type of the answer (a pydantic model or anything pydantic can validate). The model is
            asked again while its answer does not fit. None: the answer is text.
        session: ``"event"``: each event is a conversation of its own. ``"key"``: the conversation goes on over
            the events of a key.
        state_type: A pydantic model for ``ctx.state``; None: a dict.
        model: Shorthand for a chat model without a ``@chat_model_setup``: ``"offline"`` or ``"provider:model"``.

    >>> class Triage(Agent):
    ...     instructions = "You triage incidents of Flink jobs."
    ...     model = "offline"
    """

    instructions: str = ""
    output_type: Any = None
    session: str = "event"
    state_type: Any = None
    model: str | None = None

    #: Name of the agent in plans, metrics and call ids; empty: the class's qualified name.
    name: str = ""

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        """Handle one event. What is returned, when not None, is emitted.

        Everything that is slow, costs money or has an effect belongs into a durable step
        (``ctx.chat``, ``ctx.call_tool``, ``ctx.step``): after a failure the method runs again from its
        beginning, and finished steps answer from the journal. The code between the steps must therefore
        ask for the same steps when given the same event, state and answers.
        """
        return await ctx.chat(event)
