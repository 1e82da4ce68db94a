"""Agents with skills of MCP servers: declarations, the plan, and commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, PlanError, mcp_server
from flink_skills.agents.plan.spec import SkillsSection
from flink_skills.job.building import sources_of
from flink_skills.sources import SourceSpec
from flink_skills.tools.mcp import McpToolSet
from tests.tools.mcp.skills_site import OPEN, Site, write_skill


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    write_skill(tmp_path / "site" / "acme" / "refunds")
    found = Site(tmp_path / "site", tmp_path / "store")
    yield found
    found.close()


def run(site: Site, skills: Any, **more: str) -> Any:
    """Return what a command writes while the skill of the server is loaded."""
    url = site.url.removeprefix("mcp+")

    class Clerk(Agent):
        model = "offline"

        @mcp_server(skills=skills, required=False)
        def acme(self) -> str:
            return url

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            await ctx.call_tool("load_skill", name="acme:refunds")
            return await ctx.call_tool("execute_shell_command", command="sh scripts/run.sh")

    agents_env = AgentsExecutionEnvironment.get_execution_environment()
    options = {**OPEN, "skills.store.dir": str(site.store), "skills.shell.enabled": True}
    for key, value in {**options, "skills.shell.min-isolation": "HYGIENE", **more}.items():
        agents_env.get_config().set(key, value)
    return agents_env.from_list(["x"]).apply(Clerk).to_list()


@pytest.mark.row("B28")
def test_an_approved_skill_of_a_server_runs_its_script(site: Site) -> None:
    (result,) = run(site, {"scripts": ["refunds"]})
    assert result["stdout"] == "run\n"
    # The client lists the skills, and the worker uses the entries of the plan.
    assert len(site.asked("skills/list")) == 1
    assert len(site.asked("resources/read")) == 3


@pytest.mark.row("B28")
def test_without_approval_the_command_is_refused_and_only_the_skill_file_was_read(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(site, True) == []
    assert "Commands are refused while skill 'refunds' of the MCP server acme is in use" in caplog.text
    assert site.asked("resources/read") == ["skill://acme/refunds/SKILL.md"]


def test_an_approval_without_digest_is_an_error_if_the_client_read_nothing(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Exception, match="approved without a digest"):
        run(site, {"scripts": ["refunds"]}, **{"skills.validate-on-submit": "never"})


def test_skills_of_a_program_in_the_sandbox_are_an_error() -> None:
    class Clerk(Agent):
        model = "offline"

        @mcp_server(skills=True)
        def acme(self) -> dict[str, Any]:
            return {"command": "server"}

    with pytest.raises(PlanError, match="Set sandbox to false"):
        AgentsExecutionEnvironment.get_execution_environment().from_list(["x"]).apply(Clerk)


def test_the_source_of_a_server_has_its_connection() -> None:
    server = {"url": "https://mcp.acme.example/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}
    source = McpToolSet(server, name="acme", skills={"prefetch": True}).skill_source()
    assert source is not None
    spec = SourceSpec.parse("url", source)
    assert SourceSpec.parse("url", str(spec)) == spec
    assert spec.location == "mcp+https://mcp.acme.example/mcp"
    assert str(spec.public) == "mcp+https://mcp.acme.example/mcp#label=acme&prefetch=true"
    program = {"command": "server", "args": ["a b"], "sandbox": False}
    source = McpToolSet(program, name="acme", skills=True).skill_source()
    assert source is not None
    assert source["url"] == "mcp+stdio:server 'a b'"


def test_a_job_file_has_the_settings_as_keys() -> None:
    url = {"url": "mcp+https://mcp.acme.example/mcp", "label": "acme", "scripts": ["refunds"], "prefetch": True}
    (source,) = sources_of(SkillsSection.model_validate({"urls": [url]}), "urls")
    spec = SourceSpec.parse("url", source)
    assert str(spec) == "mcp+https://mcp.acme.example/mcp#label=acme&prefetch=true&scripts=refunds"
