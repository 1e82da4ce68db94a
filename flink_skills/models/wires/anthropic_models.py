"""The differences between Anthropic's models that decide what a request may contain.

They follow https://platform.claude.com/docs/en/about-claude/models and the pages on thinking, effort, and structured
outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Claude"]

_FIFTH = ("claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5")
_NEWEST = (*_FIFTH, "claude-opus-4-7", "claude-opus-4-8")
_ADAPTIVE = (*_NEWEST, "claude-opus-4-6", "claude-sonnet-4-6")
_EFFORT = (*_ADAPTIVE, "claude-opus-4-5")
_SCHEMAS = (*_EFFORT, "claude-opus-4-1", "claude-sonnet-4-5", "claude-haiku-4-5")
_MIDDLE = ("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5")
_OLD = (
    "claude-3",
    "claude-4-",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-opus-4@",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
    "claude-sonnet-4@",
)
_ALWAYS = ("claude-fable-5", "claude-mythos-5", "claude-mythos-preview", "claude-opus-5-5")
_BINDING = (
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
)


@dataclass(frozen=True)
class Claude:
    """The settings and features that a model of Anthropic accepts.

    Args:
        max_tokens: The maximum length of an answer, in tokens, if the settings have none.
        schemas: Whether it accepts an output schema.
        sampling: Whether it accepts ``temperature``, ``top_p`` and ``top_k``.
        adaptive: Whether it decides itself how much to think. Others need a budget in tokens.
        effort: The highest effort that it accepts; empty if it does not accept efforts.
        thinks: Whether it thinks by default.
        always_thinks: Whether thinking cannot be disabled.
        between_tools: Whether thinking is disabled by ``between_tools``.
        binds: Whether it accepts a thinking block only after the messages, tools and system text that preceded it.
    """

    max_tokens: int = 16_384
    schemas: bool = False
    sampling: bool = True
    adaptive: bool = False
    effort: str = ""
    thinks: bool = False
    always_thinks: bool = False
    between_tools: bool = False
    binds: bool = False

    @classmethod
    def named(cls, model: str) -> Claude:
        """Return the features of the model of this name.

        >>> Claude.named("claude-sonnet-4-5").schemas, Claude.named("claude-3-5-haiku-latest").max_tokens
        (True, 4096)
        """
        name = model.rpartition("/")[2]
        return cls(
            max_tokens=_max_tokens(name),
            schemas=name.startswith(_SCHEMAS),
            sampling=not name.startswith(_NEWEST),
            adaptive=name.startswith((*_ADAPTIVE, "claude-mythos-preview")),
            effort=_effort(name),
            thinks=name.startswith((*_FIFTH, "claude-mythos-preview")),
            always_thinks=name.startswith(_ALWAYS),
            between_tools=name.startswith("claude-sonnet-5-5"),
            binds=name.startswith(_BINDING),
        )


def _max_tokens(name: str) -> int:
    if name.startswith(_OLD) or name in ("claude-opus-4", "claude-sonnet-4"):
        # Old models reject a request if its input and max_tokens together exceed the context window.
        return 4096
    if name.startswith(_ADAPTIVE):
        return 128_000
    return 64_000 if name.startswith(_MIDDLE) else 16_384


def _effort(name: str) -> str:
    if name.startswith(_NEWEST):
        return "xhigh"
    if name.startswith("claude-opus-4-5"):
        return "high"
    return "max" if name.startswith(_EFFORT) else ""
