"""Agents with skills of MCP servers: declarations, the plan, and commands."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, PlanError, SkillConfig, mcp_server
from flink_skills.agents import TurnStatus, compile_plan, open_plan
from flink_skills.agents.plan.spec import SkillsSection
from flink_skills.job.building import sources_of
from flink_skills.manager import SkillScope
from flink_skills.models import ModelRequest, ToolMessage
from flink_skills.sources import SourceSpec
from flink_skills.testing import call, calls
from flink_skills.tools.mcp import McpToolSet
from tests.kit.agents import Bench
from tests.kit.models import Script
from tests.kit.waiting import until
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


Opened = Callable[..., Awaitable[Bench]]


class Keyed(Agent):
    model = "scripted:m"
    session = "key"


@pytest.fixture
async def opened(tmp_path: Path, script: Script, isolation: dict[str, str], proved_once: None) -> AsyncIterator[Opened]:
    """Open agents with the skills of a server. ``of`` opens the plan of another one."""
    runtimes: list[Any] = []

    async def open_with(site: Site, *, of: Bench | None = None, **options: Any) -> Bench:
        config = SkillConfig({**OPEN, **isolation, "skills.shell.enabled": True, **options})
        config = SkillConfig({"skills.store.dir": str(site.store)}).merged_over(config)
        scopes = [SkillScope("job", urls=[site.source()])]
        plan = of.runtime.plan if of else compile_plan(Keyed, job_scopes=scopes, config=config)
        runtimes.append(await open_plan(plan, scratch_dir=str(tmp_path / f"scratch-{len(runtimes)}")))
        return Bench(runtimes[-1])

    yield open_with
    for runtime in runtimes:
        await runtime.close()


def results(request: ModelRequest) -> list[str]:
    return [message.content for message in request.messages if isinstance(message, ToolMessage)]


async def test_a_load_is_a_journaled_step_that_a_failover_does_not_repeat(
    site: Site, opened: Opened, script: Script
) -> None:
    model = script([calls(call("load_skill", name="refunds")), "done", "done"])
    bench = await opened(site)
    first = await bench.turn("x")
    assert first.status == TurnStatus.DONE
    (loaded,) = results(model.requests[-1])
    assert "# refunds" in loaded
    journal = bench.journal[:2]  # the answer of the model, and the load
    write_skill(site.folder / "acme/refunds", "license: MIT\n")
    shutil.rmtree(site.store)
    again = await opened(site, of=bench)
    second = await again.turn("x", journal=journal)
    assert second.status == TurnStatus.DONE
    assert results(model.requests[-1]) == [loaded]
    assert site.asked("resources/read") == ["skill://acme/refunds/SKILL.md"]


@pytest.mark.parametrize("profile", ["core", "full"])
async def test_commands_are_refused_as_long_as_the_instructions_are_in_the_conversation(
    site: Site, opened: Opened, script: Script, profile: str
) -> None:
    load = call("load_skill", name="refunds") if profile == "core" else call("skill_load", skill="refunds")
    command = calls(call("execute_shell_command", command="echo ran"))
    model = script([calls(load), "done", command, "done"])
    bench = await opened(site, **{"skills.tools": f"{profile}, execute_shell_command"})
    first = await bench.turn("x")
    second = await bench.turn("y", number=2, session=first.session)
    assert second.status == TurnStatus.DONE
    request = model.requests[-1]
    is_there = "# refunds" in repr(request)
    assert is_there == (profile == "core")
    assert ("Commands are refused" in results(request)[-1]) == is_there


@pytest.mark.row("B17")
@pytest.mark.parametrize("interval", ["1 h", "0"])
async def test_a_report_of_the_server_refreshes_the_skills_of_a_job_that_refreshes(
    tmp_path: Path, opened: Opened, interval: str
) -> None:
    write_skill(tmp_path / "site" / "acme" / "refunds")
    with closing(Site(tmp_path / "site", tmp_path / "store", "stdio")) as site:
        site.faults["reports"] = True
        bench = await opened(site, **{"skills.refresh.interval": interval})
        assert bench.runtime.generation.model(None).view.names == ("refunds",)
        if interval == "0":
            assert site.asked("subscriptions/listen") == []
            return
        await until(lambda: site.asked("subscriptions/listen"))
        write_skill(site.folder / "acme/extra")
        site.faults["announced"] = 1
        await until(lambda: "extra" in bench.runtime.generation.model(None).view.names)


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
