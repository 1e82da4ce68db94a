"""The names of tools in diagnostics are those of tools that exist. Reads a private module, which has the names."""

from __future__ import annotations

import pytest

from flink_skills import AgentSkill
from flink_skills.skill import check_support
from flink_skills.skill.support import PROFILE_TOOLS, READY_MADE_TOOLS
from flink_skills.tools.files import FileToolSet
from flink_skills.tools.profiles import PROFILES, TOOL_NAMES
from flink_skills.tools.web import WebFetchTool, WebSearchTool


async def test_diagnostics_name_tools_that_exist() -> None:
    files = await FileToolSet().get_tools(None)
    ready_made = {tool.spec.name for tool in (*files, WebFetchTool(), WebSearchTool())}
    assert set(READY_MADE_TOOLS.values()) == ready_made - {"Bash"}
    assert TOOL_NAMES - set(PROFILES["core"]) == PROFILE_TOOLS


@pytest.mark.parametrize("name", sorted(TOOL_NAMES | set(READY_MADE_TOOLS.values())))
def test_no_tool_that_exists_is_called_missing(name: str) -> None:
    found = check_support(AgentSkill("a", "Does it.", allowed_tools=(name,)))
    assert [each.code for each in found] in ([], ["U02"])
