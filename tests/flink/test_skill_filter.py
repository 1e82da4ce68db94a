"""``skill_names``: what a model may see is enforced in every tool, not only in its prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import (
    Agent,
    AgentContext,
    AgentsExecutionEnvironment,
    AgentSkillManager,
    ConfigError,
    SkillLockError,
    tool,
)
from flink_skills.manager import SkillLock
from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.flink.agents import Guarded, Scripted
from tests.flink.running import collect, failure_of, flink_environment
from tests.flink.skill_files import write_skill

pytestmark = pytest.mark.flink

ASKED = (
    Call("load_skill", {"name": "secret"}),
    Call("load_skill", {"name": "secrex"}),
    Call("load_skill_resource", {"name": "secret", "path": "references/where.txt"}),
    Call("unload_skill", {"name": "secret"}),
    Call("load_skill", {"name": "publik"}),
    Call("load_skill", {"name": "public"}),
    Call("load_skill_resource", {"name": "public", "path": "references/where.txt"}),
    Call("execute_shell_command", {"command": "ls $SKILLS_DIR; cat $SKILLS_DIR/secret/SKILL.md"}),
)


def script(body: dict[str, Any]) -> Reply:
    """One call at a time, then the answer."""
    done = sum(message["role"] == "tool" for message in body["messages"])
    return Reply(tool_calls=(ASKED[done],)) if done < len(ASKED) else Reply("done")


@pytest.mark.row("B12")
def test_a_filtered_skill_does_not_exist_for_the_model(
    serve: Callable[..., ScriptedModelServer], tmp_path: Path
) -> None:
    server = serve(script)
    skills = tmp_path / "skills"
    write_skill(skills, "public", description="For everybody.")
    write_skill(skills, "secret", description="For some.")
    env = flink_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env).add_skills_from_paths(str(skills))
    events = env.from_collection([("a", "b")], Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.STRING()]))
    narrow = agents_env.from_datastream(events, "k").apply(Scripted(server.url, skill_names=["public"]))
    records = collect(narrow.to_datastream(), narrow.to_datastream(tag="errors"))
    assert [(record["answer"], record["skills"]) for record in records] == [("done", ["public"])]

    last = server.requests[-1]
    assert "secret" not in str(last["messages"][0])
    assert "secret" not in str(last["tools"])
    results = [message["content"] for message in last["messages"] if message["role"] == "tool"]
    hidden, absent, resource, unload, misspelt, loaded, read, listed = results
    # The same words as for a skill that nobody has.
    assert hidden == absent.replace("secrex", "secret")
    assert hidden == resource == unload
    assert "There is no skill 'secret'. Skills: public." in hidden
    assert "There is no skill 'publik'. Did you mean public? Skills: public." in misspelt
    assert "Say hello." in loaded
    assert read == "this is public\n"
    assert "secret" not in listed.partition("stderr:")[0]
    assert "No such file" in listed


@pytest.fixture
def locked(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with two skills, and the lock file of what is in it."""
    folder = tmp_path / "skills"
    for name in ("one", "two"):
        write_skill(folder, name)
    lock = tmp_path / "skills.lock"
    lock.write_text(SkillLock.of(AgentSkillManager(paths=[str(folder)]).load_skills()).to_text())
    return folder, lock


def change(folder: Path) -> None:
    (folder / "two" / "references" / "where.txt").write_text("not what was locked\n")


def apply(folder: Path, lock: str, **options: str) -> Any:
    env = flink_environment({"skills.lock": lock, **options})
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env).add_skills_from_paths([str(folder)])
    stream = env.from_collection(["x"], Types.STRING())
    return agents_env.from_datastream(stream, lambda event: event).apply(Guarded("")).to_datastream()


def test_the_locked_skills_run_and_the_file_is_needed_at_submit_alone(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    stream = apply(folder, str(lock))
    lock.unlink()
    assert collect(stream) == [["one", "two"]]


def test_other_skills_are_refused_at_submit(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    change(folder)
    write_skill(folder, "three")
    with pytest.raises(SkillLockError, match="2 skills do not match") as refused:
        apply(folder, str(lock))
    assert "'three'" in str(refused.value) and "'two'" in str(refused.value)


@pytest.mark.both_versions
def test_skills_that_change_after_submit_are_refused_at_open_and_not_tried_again(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    stream = apply(
        folder,
        str(lock),
        **{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000000"},
    )
    change(folder)
    failure = failure_of(stream)
    assert failure.startswith("1 skill does not match skills.lock:\n- skill 'two' of ")
    assert "'flink-skills lock'" in failure


def test_a_lock_that_is_not_there_is_said_at_submit_where_the_job_runs_here(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    with pytest.raises(ConfigError, match=r"skills.lock .*missing.lock: the file cannot be read"):
        apply(folder, str(lock.with_name("missing.lock")))


def test_a_relative_lock_is_refused_with_the_absolute_path(
    locked: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock = locked
    monkeypatch.chdir(lock.parent)
    with pytest.raises(ConfigError, match=f"write '{lock}'"):
        apply(folder, "skills.lock")


TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])


class Payer(Agent):
    name = "payer"

    @tool
    def pay(self) -> str:
        """Pay."""
        return "paid"

    def approve(self, request: Any) -> bool:
        return True

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.call_tool("pay")


class Clerk(Agent):
    name = "clerk"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return "seen"


def applied(approve: str, *agents: type[Agent]) -> tuple[AgentsExecutionEnvironment, list[Any]]:
    env = flink_environment({"skills.tools.approve": approve})
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    return agents_env, [events.apply(agent) for agent in agents]


@pytest.mark.both_versions
def test_an_agent_that_is_applied_later_has_the_tool() -> None:
    _, outputs = applied("pay", Clerk, Payer)
    assert sorted(collect(*(output.to_datastream() for output in outputs))) == ["paid", "seen"]


def test_a_tool_that_no_agent_has_is_rejected_at_submit_and_by_the_workers() -> None:
    expected = "option skills.tools.approve: 'pai' matches no tool of"
    agents_env, outputs = applied("pai", Clerk, Payer)
    outputs[1].to_datastream().print()
    with pytest.raises(ConfigError, match=f"{expected} the agents 'clerk', 'payer'. Did you mean 'pay'"):
        agents_env.execute("pays")
    # Flink's own methods run a job without the environment of the agents.
    _, outputs = applied("pai", Payer)
    with pytest.raises(Exception, match=f"AgentRejectedException.*{expected} agent 'payer'. Did you mean 'pay'"):
        collect(outputs[0].to_datastream())
