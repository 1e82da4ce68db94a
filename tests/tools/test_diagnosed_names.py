"""The names of tools in diagnostics are those of tools that exist."""

from __future__ import annotations

import re

import pytest

from flink_skills import AgentSkill
from flink_skills.skill import check_support
from flink_skills.tools import TOOL_NAMES
from flink_skills.tools.files import FileToolSet
from flink_skills.tools.web import WebFetchTool, WebSearchTool

READY_MADE = ["Edit", "Glob", "Grep", "Read", "Write", "web_fetch", "web_search"]
# As other agents call them.
FOREIGN = ["MultiEdit", "NotebookRead", "LS", "WebFetch", "WebSearch", "read_file", "str_replace", "view", "search"]


def diagnosed(*names: str) -> list[tuple[str, str]]:
    return [(each.code, each.message) for each in check_support(AgentSkill("a", "Does it.", allowed_tools=names))]


async def test_diagnostics_name_tools_that_exist() -> None:
    tools = [*await FileToolSet().get_tools(None), WebFetchTool(), WebSearchTool()]
    assert sorted({tool.spec.name for tool in tools} - {"Bash"}) == READY_MADE
    [(code, message)] = diagnosed(*READY_MADE)
    declares = re.search(r"an agent that declares (.+) has these tools", message)
    assert (code, declares is not None and sorted(declares[1].split(", "))) == ("U02", READY_MADE)


@pytest.mark.parametrize("name", sorted({*TOOL_NAMES, *READY_MADE, *FOREIGN}))
def test_no_tool_that_exists_is_called_missing(name: str) -> None:
    assert [code for code, _ in diagnosed(name)] in ([], ["U02"])
