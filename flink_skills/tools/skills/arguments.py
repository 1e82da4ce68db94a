"""The arguments of the tools about skills. The names of both source systems are accepted; the schema shows one."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from flink_skills.tools.given import Also, Given

__all__ = [
    "Count",
    "DocsArguments",
    "NameArguments",
    "Names",
    "NoArguments",
    "OptionalText",
    "SkillArguments",
    "Switch",
    "Text",
    "ToolsArguments",
    "names_given",
]

#: A text that is not empty; the schema does not spend words on that.
Text = Annotated[str, Field(min_length=1), WithJsonSchema({"type": "string"})]

#: A text that may be left out.
OptionalText = Annotated[str | None, WithJsonSchema({"type": "string"})]

#: A number that is not below 0.
Count = Annotated[int, Field(ge=0), WithJsonSchema({"type": "integer"})]


def names_given(value: Any) -> Any:
    """A list of names from what models send for one: a list, its JSON, one name, or several with commas.

    >>> names_given('["a.md", "b.md"]'), names_given("a.md, b.md")
    (['a.md', 'b.md'], ['a.md', 'b.md'])
    """
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return [value]
    return [name.strip() for name in value.split(",") if name.strip()]


#: Names of documents or tools. What a model leaves out is none.
Names = Annotated[
    tuple[str, ...], BeforeValidator(names_given), WithJsonSchema({"type": "array", "items": {"type": "string"}})
]

#: A switch that is off where a model leaves it out; the schema does not spend words on that.
Switch = Annotated[bool, WithJsonSchema({"type": "boolean"})]


class NoArguments(Given):
    """For a tool that needs to be told nothing."""


class NameArguments(Given):
    """A skill, by ``name``."""

    name: Annotated[Text, Also("skill", "skill_name")]


class SkillArguments(Given):
    """A skill, by ``skill``."""

    skill: Annotated[Text, Also("skill_name", "name")]


class DocsArguments(SkillArguments):
    """Documents of a skill."""

    docs: Annotated[Names, Also("selected_docs", "documents", "doc", "document")] = ()
    include_all_docs: Annotated[Switch, Also("all_docs", "include_all", "include_all_documents")] = False


class ToolsArguments(SkillArguments):
    """Tools of a skill."""

    tools: Annotated[Names, Also("selected_tools", "tool", "tool_names")] = ()
    include_all_tools: Annotated[Switch, Also("all_tools", "include_all")] = False
